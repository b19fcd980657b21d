"""An operator of kopf. Its handlers write what they have seen into the status, and post events."""

import asyncio

import kopf


@kopf.on.startup()
def configure(settings, **_):
    # The operator soon finds a restarted server.
    settings.watching.reconnect_backoff = 0.1
    settings.networking.error_backoffs = [0.1] * 100
    # A deletion looks again soon whether daemons have ended.
    settings.background.cancellation_polling = 0.1
    # Post events of the level `info`, too.
    settings.posting.level = 20


@kopf.on.create("example.com", "v1", "lamps")
def created(spec, patch, body, **_):
    patch.status["shines"] = spec["colour"]
    kopf.info(body, reason="Painted", message=f"The lamp is {spec['colour']} now.")
    return {"watts": 5}


@kopf.on.update("example.com", "v1", "lamps", field="spec.colour")
def updated(old, new, patch, **_):
    patch.status["shines"] = f"{new}, not {old}"


@kopf.on.delete("example.com", "v1", "lamps")
def deleted(name, **_):
    print(f"deleted {name}", flush=True)


@kopf.timer("example.com", "v1", "lamps", interval=0.2)
def ticks(annotations, patch, **_):
    patch.metadata.annotations["ticks"] = str(min(int(annotations.get("ticks", 0)) + 1, 3))


@kopf.daemon("example.com", "v1", "lamps")
async def serves(name, stopped, **_):
    print(f"serves {name}", flush=True)
    while not stopped:
        await asyncio.sleep(0.05)
    print(f"no longer serves {name}", flush=True)
