"""Echo server and client with asyncio.

python -m echo serve PORT
python -m echo talk HOST PORT SIZE ROUNDS [PAUSE]: round trips one after the other, and percentiles.
python -m echo idle HOST PORT COUNT SECONDS: connections that do nothing for so long, then answer.
"""

import asyncio
import json
import sys
import time

# Round trips before those that count.
WARM_UP = 3


async def echo(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def listen(host, port):
    return await asyncio.start_server(echo, host, port, backlog=1024)


async def serve(port):
    server = await listen("0.0.0.0", port)
    await server.serve_forever()


async def round_trip(reader, writer, message):
    began = time.perf_counter_ns()
    writer.write(message)
    answer = await reader.readexactly(len(message))
    took = time.perf_counter_ns() - began
    if answer != message:
        raise ValueError("the answer differs from the request")
    return took / 1000


def percentile(times, percent):
    rank = -(-len(times) * percent // 100)
    return sorted(times)[max(rank, 1) - 1]


async def talk(host, port, size, rounds, pause=0.0):
    reader, writer = await asyncio.open_connection(host, port)
    message = b"x" * size
    times = []
    for _ in range(WARM_UP + rounds):
        if pause:
            await asyncio.sleep(pause)
        times.append(await round_trip(reader, writer, message))
    writer.close()
    times = times[WARM_UP:]
    return {"count": len(times), "p50_us": percentile(times, 50), "p99_us": percentile(times, 99)}


async def idle(host, port, count, seconds):
    connections = [await asyncio.open_connection(host, port) for _ in range(count)]
    for reader, writer in connections:
        await round_trip(reader, writer, b"first")
    print(f"open {count}.", flush=True)
    await asyncio.sleep(seconds)
    for reader, writer in connections:
        await round_trip(reader, writer, b"last")
    return {"answered": len(connections)}


async def all_at_once():
    """Uses all parts, which loads all modules that they need."""
    server = await listen("127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await talk("127.0.0.1", port, 64, 3, 0.001)
    await idle("127.0.0.1", port, 2, 0.001)
    server.close()
    # The server's tasks end after their clients.
    await asyncio.sleep(0.1)


def main(mode, *words):
    if mode == "serve":
        asyncio.run(serve(int(words[0])))
    elif mode == "talk":
        host, port, size, rounds = words[:4]
        pause = float(words[4]) if len(words) > 4 else 0.0
        print(json.dumps(asyncio.run(talk(host, int(port), int(size), int(rounds), pause))))
    elif mode == "idle":
        host, port, count, seconds = words
        print(json.dumps(asyncio.run(idle(host, int(port), int(count), float(seconds)))))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
