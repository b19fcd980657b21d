// client-go: discovery, informers with resync, leader election with a lease, and both event recorders.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	core "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
)

var (
	sites = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "sites"}
	ctx   = context.Background()
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// until waits for a condition, at most a minute.
func until(what string, condition func() bool) {
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			panic("never true: " + what)
		}
	}
}

func site(name, title string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Site",
		"metadata": map[string]any{"name": name, "namespace": "default"},
		"spec":     map[string]any{"title": title},
	}}
}

func discovery(config *rest.Config) {
	lists, err := kubernetes.NewForConfigOrDie(config).Discovery().ServerPreferredResources()
	check(err)
	var found []string
	for _, list := range lists {
		for _, resource := range list.APIResources {
			found = append(found, list.GroupVersion+" "+resource.Name)
		}
	}
	for _, expected := range []string{"example.com/v1 sites", "v1 configmaps", "v1 events", "coordination.k8s.io/v1 leases"} {
		if !slices.Contains(found, expected) {
			panic(fmt.Sprintf("%s is not in %v", expected, found))
		}
	}
}

// Counts what an informer tells. A resync tells an object again with the version that it has.
type counts struct{ added, changed, resynced, deleted atomic.Int32 }

func (c *counts) handlers() cache.ResourceEventHandler {
	version := func(object any) string { return object.(meta.Object).GetResourceVersion() }
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { c.added.Add(1) },
		UpdateFunc: func(old, new any) {
			switch {
			case version(old) == version(new):
				c.resynced.Add(1)
			default:
				c.changed.Add(1)
			}
		},
		DeleteFunc: func(any) { c.deleted.Add(1) },
	}
}

func (c *counts) wait(added, changed, deleted int32) {
	found := func() string {
		return fmt.Sprintf("%d added, %d changed, %d deleted", c.added.Load(), c.changed.Load(), c.deleted.Load())
	}
	expected := fmt.Sprintf("%d added, %d changed, %d deleted", added, changed, deleted)
	defer func() {
		if problem := recover(); problem != nil {
			panic(fmt.Sprintf("%v, but %s", problem, found()))
		}
	}()
	until(expected, func() bool { return found() == expected })
}

func customInformer(config *rest.Config) {
	client := dynamic.NewForConfigOrDie(config)
	place := client.Resource(sites).Namespace("default")
	_, err := place.Create(ctx, site("before", "Before"), meta.CreateOptions{})
	check(err)
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, time.Second, "default", nil)
	var seen counts
	informer := factory.ForResource(sites)
	_, err = informer.Informer().AddEventHandler(seen.handlers())
	check(err)
	stop := make(chan struct{})
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	blue, err := place.Create(ctx, site("blue", "Blue"), meta.CreateOptions{})
	check(err)
	stale := blue.DeepCopy()
	check(unstructured.SetNestedField(blue.Object, "Light blue", "spec", "title"))
	_, err = place.Update(ctx, blue, meta.UpdateOptions{})
	check(err)
	if _, err = place.Update(ctx, stale, meta.UpdateOptions{}); !kerrors.IsConflict(err) {
		panic(fmt.Sprintf("a stale version was written: %v", err))
	}
	if _, err = place.Create(ctx, site("bad", "Taken"), meta.CreateOptions{}); !kerrors.IsInvalid(err) {
		panic(fmt.Sprintf("a refused site was stored: %v", err))
	}
	applied, err := place.Apply(ctx, "red", site("red", "Red"), meta.ApplyOptions{FieldManager: "go", Force: true})
	check(err)
	again, err := place.Apply(ctx, "red", site("red", "Red"), meta.ApplyOptions{FieldManager: "go", Force: true})
	check(err)
	if applied.GetResourceVersion() != again.GetResourceVersion() {
		panic("an apply without a change has changed the version")
	}
	seen.wait(3, 1, 0)
	until("a resync", func() bool { return seen.resynced.Load() >= 3 })
	check(place.Delete(ctx, "blue", meta.DeleteOptions{}))
	seen.wait(3, 1, 1)
	if objects, err := informer.Lister().List(labels.Everything()); err != nil || len(objects) != 2 {
		panic(fmt.Sprintf("the store has %d objects: %v", len(objects), err))
	}
	close(stop)
	factory.Shutdown()
}

// Typed clients of built-in kinds use protocol buffers.
func typedInformer(config *rest.Config) {
	client := kubernetes.NewForConfigOrDie(config)
	factory := informers.NewSharedInformerFactory(client, time.Second)
	var seen counts
	_, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(seen.handlers())
	check(err)
	stop := make(chan struct{})
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	maps := client.CoreV1().ConfigMaps("default")
	colours := &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: "colours"}, Data: map[string]string{"sky": "blue"}}
	_, err = maps.Create(ctx, colours, meta.CreateOptions{})
	check(err)
	patched, err := maps.Patch(ctx, "colours", types.StrategicMergePatchType, []byte(`{"data": {"sea": "green"}}`), meta.PatchOptions{})
	if err != nil {
		patched, err = maps.Patch(ctx, "colours", types.MergePatchType, []byte(`{"data": {"sea": "green"}}`), meta.PatchOptions{})
	}
	check(err)
	if len(patched.Data) != 2 {
		panic(fmt.Sprintf("the data is %v", patched.Data))
	}
	seen.wait(1, 1, 0)
	until("a resync", func() bool { return seen.resynced.Load() >= 2 })
	check(maps.Delete(ctx, "colours", meta.DeleteOptions{}))
	seen.wait(1, 1, 1)
	close(stop)
	factory.Shutdown()
}

func leaders(config *rest.Config) {
	client := kubernetes.NewForConfigOrDie(config)
	var leader atomic.Value
	leader.Store("")
	var group sync.WaitGroup
	start := func(name string) context.CancelFunc {
		running, cancel := context.WithCancel(ctx)
		lock := &resourcelock.LeaseLock{
			LeaseMeta:  meta.ObjectMeta{Name: "leader", Namespace: "default"},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: name},
		}
		group.Add(1)
		go func() {
			defer group.Done()
			leaderelection.RunOrDie(running, leaderelection.LeaderElectionConfig{
				Lock: lock, ReleaseOnCancel: true,
				LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 200 * time.Millisecond,
				Callbacks: leaderelection.LeaderCallbacks{
					OnStartedLeading: func(stopped context.Context) { leader.Store(name) },
					OnStoppedLeading: func() {},
				},
			})
		}()
		return cancel
	}
	stopFirst := start("first")
	until("the first leads", func() bool { return leader.Load() == "first" })
	stopSecond := start("second")
	time.Sleep(time.Second)
	if leader.Load() != "first" {
		panic("two lead")
	}
	stopFirst()
	until("the second leads", func() bool { return leader.Load() == "second" })
	lease, err := client.CoordinationV1().Leases("default").Get(ctx, "leader", meta.GetOptions{})
	check(err)
	if *lease.Spec.HolderIdentity != "second" || *lease.Spec.LeaseTransitions != 1 {
		panic(fmt.Sprintf("the lease is %v", lease.Spec))
	}
	stopSecond()
	group.Wait()
}

func recorders(config *rest.Config) {
	client := kubernetes.NewForConfigOrDie(config)
	object, err := dynamic.NewForConfigOrDie(config).Resource(sites).Namespace("default").Get(ctx, "red", meta.GetOptions{})
	check(err)
	old := record.NewBroadcaster()
	old.StartRecordingToSink(&typed.EventSinkImpl{Interface: client.CoreV1().Events("")})
	oldRecorder := old.NewRecorder(scheme.Scheme, core.EventSource{Component: "old"})
	for range 3 {
		oldRecorder.Event(object, core.EventTypeNormal, "Painted", "by record")
	}
	current := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	check(current.StartRecordingToSinkWithContext(ctx))
	currentRecorder := current.NewRecorder(scheme.Scheme, "current")
	currentRecorder.Eventf(object, nil, core.EventTypeNormal, "Dried", "Drying", "by events")
	until("both events are there", func() bool {
		list, err := client.CoreV1().Events("default").List(ctx, meta.ListOptions{FieldSelector: "involvedObject.name=red"})
		check(err)
		found := map[string]int32{}
		for _, event := range list.Items {
			found[event.Message] = event.Count
		}
		_, dried := found["by events"]
		return found["by record"] == 3 && dried
	})
	old.Shutdown()
	current.Shutdown()
}

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	check(err)
	for _, part := range []struct {
		name string
		run  func(*rest.Config)
	}{
		{"discovery", discovery}, {"an informer of custom objects", customInformer},
		{"an informer of a built-in kind", typedInformer}, {"leader election", leaders}, {"event recorders", recorders},
	} {
		fmt.Println(part.name)
		part.run(rest.CopyConfig(config))
	}
}
