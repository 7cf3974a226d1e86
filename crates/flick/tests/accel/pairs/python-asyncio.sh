# An event loop of Python at both ends; many requests are in flight.
setup() {
    cat > server.py <<END
import asyncio
async def answer(reader, writer):
    while line := await reader.readline():
        writer.write(line[::-1].strip() + b'\n')
        await writer.drain()
async def serve():
    async with await asyncio.start_server(answer, '127.0.0.1', $port) as server: await server.serve_forever()
asyncio.run(serve())
END
}
server() { exec /usr/bin/python3 "$dir/server.py"; }
client() {
    cat > "$dir/client.py" <<END
import asyncio, hashlib
async def ask(seed):
    reader, writer = await asyncio.open_connection('127.0.0.1', $port)
    for i in range(400):
        line = str(i * 7919 + seed) * (i % 30 + 1)
        writer.write(line.encode() + b'\n')
        assert (await reader.readline()).decode() == line[::-1] + '\n'
    writer.close()
async def main():
    async with asyncio.TaskGroup() as group:
        for seed in range(5): group.create_task(ask(seed))
asyncio.run(main())
print('right')
END
    /usr/bin/python3 "$dir/client.py"
}
