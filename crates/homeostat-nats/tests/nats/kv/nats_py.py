"""nats-py writes and reads a bucket. usage: nats_py.py URL write|read BUCKET"""

import asyncio
import sys

import nats
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError


async def write(kv):
    await kv.put("plain", b"1")
    await kv.put("plain", b"2")
    revision = await kv.create("updated", b"x")
    await kv.update("updated", b"y", last=revision)
    await kv.put("deleted", b"1")
    await kv.delete("deleted")
    await kv.put("purged", b"1")
    await kv.put("purged", b"2")
    await kv.purge("purged")
    await kv.put("empty", b"")
    await kv.put("a.b/c=d_e-f", "ü".encode())


async def read(kv):
    assert (await kv.get("plain")).value == b"2"
    assert (await kv.get("empty")).value in (b"", None)
    assert (await kv.get("a.b/c=d_e-f")).value.decode() == "ü"
    updated = await kv.get("updated")
    assert updated.value == b"y"
    for key, operation in [("deleted", "DEL"), ("purged", "PURGE")]:
        try:
            await kv.get(key)
        except KeyNotFoundError as error:
            assert error.op == operation, (key, error.op)
        else:
            raise AssertionError(f"{key} has a value")
    try:
        await kv.get("missing")
    except KeyNotFoundError:
        pass
    else:
        raise AssertionError("missing has a value")
    assert sorted(await kv.keys()) == ["a.b/c=d_e-f", "empty", "plain", "updated"]
    history = [(entry.value, entry.operation) for entry in await kv.history("plain")]
    assert history == [(b"1", None), (b"2", None)], history
    history = [entry.operation for entry in await kv.history("deleted")]
    assert history == [None, "DEL"], history
    history = [entry.operation for entry in await kv.history("purged")]
    assert history == ["PURGE"], history
    try:
        await kv.update("updated", b"z", last=updated.revision - 1)
    except KeyWrongLastSequenceError:
        pass
    else:
        raise AssertionError("a stale revision was written")
    # A deleted key can be created again.
    await kv.create("deleted", b"again")


async def main():
    url, what, bucket = sys.argv[1:]
    connection = await nats.connect(url)
    streams = connection.jetstream()
    if bucket.startswith("OURS"):
        kv = await streams.key_value(bucket)
    else:
        kv = await streams.create_key_value(bucket=bucket, history=5)
    await {"write": write, "read": read}[what](kv)
    await connection.close()


asyncio.run(asyncio.wait_for(main(), 60))
