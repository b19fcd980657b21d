//! Persistent maps and their clones equal maps of the standard library.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

type Map = PersistentMap<String, usize>;
type Model = BTreeMap<String, usize>;

/// Checks the structure of a map, and that it has the entries of the model.
fn check(map: &Map, model: &Model) {
    fn depth(node: &TreeNode<String, usize>, above: Option<&str>, below: Option<&str>) -> usize {
        assert!((1..=MOST).contains(&node.len()));
        match node {
            TreeNode::Leaf(entries) => {
                assert!(entries.is_sorted_by(|(one, _), (next, _)| one < next));
                assert!(above.is_none_or(|above| *entries[0].0 >= *above));
                assert!(below.is_none_or(|below| *entries[entries.len() - 1].0 < *below));
                1
            }
            TreeNode::Inner(children) => {
                let depths = (0..children.len()).map(|at| {
                    let above = if at == 0 { above } else { Some(children[at].0.as_str()) };
                    let below = children.get(at + 1).map_or(below, |(bound, _)| Some(bound));
                    depth(&children[at].1, above, below)
                });
                let depths: Vec<_> = depths.collect();
                assert!(depths.iter().all(|depth| *depth == depths[0]), "{depths:?}");
                depths[0] + 1
            }
        }
    }
    if let Some(root) = &map.root {
        depth(root, None, None);
    }
    assert_eq!(map.len(), model.len());
    assert!(map.iter().eq(model.iter()));
}

fn name(number: usize) -> String {
    format!("{number:04}")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Clones keep their entries while the map changes. At first most operations are inserts, at last most are
    /// removals.
    #[test]
    fn a_map_and_its_clones_equal_btree_maps(
        steps in prop::collection::vec((0_usize..1_500, 0_usize..3_000, 0_usize..40), 0..3_000),
    ) {
        let (mut map, mut model) = (Map::default(), Model::default());
        let mut clones: Vec<(Map, Model)> = Vec::new();
        let count = steps.len();
        for (at, (key, chance, rare)) in steps.into_iter().enumerate() {
            let key = name(key);
            if chance * count >= at * 3_000 {
                prop_assert_eq!(map.insert(key.clone(), at), model.insert(key, at));
            } else if rare % 2 == 0 {
                // Existing keys are near.
                let Some(key) = model.range(key..).next().map(|(key, _)| key.clone()) else { continue };
                prop_assert_eq!(map.remove(&key), model.remove(&key));
            } else {
                prop_assert_eq!(map.remove(&key), model.remove(&key));
                if let Some(value) = map.get_mut(&key) {
                    *value += 1;
                }
                model.entry(key).and_modify(|value| *value += 1);
            }
            if rare == 0 {
                clones.push((map.clone(), model.clone()));
            }
        }
        clones.push((map, model));
        for (map, model) in &clones {
            check(map, model);
        }
    }

    #[test]
    fn ranges_equal_those_of_btree_maps(
        keys in prop::collection::btree_set(0_usize..400, 0..300),
        from in 0_usize..400,
        length in prop::option::of(0_usize..400),
    ) {
        let model: Model = keys.into_iter().map(|key| (name(key), key)).collect();
        let mut map = Map::default();
        for (key, value) in &model {
            map.insert(key.clone(), *value);
        }
        let (from, end) = (name(from), length.map(|length| name(from + length)));
        for bound in [Bound::Included(&from), Bound::Excluded(&from), Bound::Unbounded] {
            let expected = model.iter().filter(|(key, _)| match bound {
                Bound::Included(from) => *key >= from,
                Bound::Excluded(from) => *key > from,
                Bound::Unbounded => true,
            });
            let expected = expected.filter(|(key, _)| end.as_ref().is_none_or(|end| *key < end));
            prop_assert!(map.range(bound, end.as_ref()).eq(expected));
        }
        for key in (0..400).map(name) {
            prop_assert_eq!(map.get(&key), model.get(&key));
            prop_assert_eq!(map.get_key_value(&key), model.get_key_value(&key));
        }
    }
}

#[test]
fn keys_in_order_fill_the_nodes() {
    let mut map = Map::default();
    let mut model = Model::default();
    for number in 0..5_000 {
        map.insert(name(number), number);
        model.insert(name(number), number);
    }
    check(&map, &model);
    let mut leaves = 0;
    let mut open = vec![map.root.as_ref().unwrap()];
    while let Some(node) = open.pop() {
        match &**node {
            TreeNode::Leaf(_) => leaves += 1,
            TreeNode::Inner(children) => open.extend(children.iter().map(|(_, child)| child)),
        }
    }
    assert_eq!(leaves, 5_000_usize.div_ceil(MOST));
    // Like a history: entries are added at the end and removed at the beginning.
    for number in 0..4_990 {
        map.insert(name(number + 5_000), number);
        model.insert(name(number + 5_000), number);
        assert_eq!(map.remove(&name(number)), model.remove(&name(number)));
    }
    check(&map, &model);
}

#[test]
fn a_removal_leaves_the_clone_as_it_was() {
    let mut map = Map::default();
    for number in 0..1_000 {
        map.insert(name(number), number);
    }
    let before = map.clone();
    for number in 0..1_000 {
        assert_eq!(map.remove(&name(number)), Some(number));
    }
    assert!(map.root.is_none() && map.len() == 0);
    assert_eq!(map.remove("0001"), None);
    assert_eq!(map.get_mut("0001"), None);
    assert_eq!(before.iter().map(|(_, number)| *number).collect::<Vec<_>>(), (0..1_000).collect::<Vec<_>>());
}
