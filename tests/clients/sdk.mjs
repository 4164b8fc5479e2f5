// The official MCP client library runs a sandbox's whole life: `node sdk.mjs BRIDGE IMAGE`. It validates every answer against the schemas.
import assert from 'node:assert/strict';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const [bridge, image] = process.argv.slice(2);
const client = new Client({ name: 'sandbox-test', version: '1' });
await client.connect(new StdioClientTransport({ command: bridge, env: { ...process.env } }));

const { tools } = await client.listTools();
assert.ok(tools.length >= 13);
const call = async (name, args, options) => {
  const result = await client.callTool({ name, arguments: args }, undefined, options);
  assert.ok(!result.isError, JSON.stringify(result.structuredContent));
  return result.structuredContent;
};

await client.ping();
assert.equal((await call('sandbox_health', {})).health.status, 'ok');
const made = await call('sandbox_create', { image, name: 'sdk', disk_mib: 64, memory_mib: 256, pids: 64, generated_code: true });
assert.equal(made.sandbox.state, 'running');
await call('sandbox_files_write', { sandbox_id: 'sdk', path: 'x.txt', content: 'hello\n' });
const ran = await call('sandbox_exec', { sandbox_id: 'sdk', argv: ['cat', '/workspace/x.txt'] });
assert.equal(ran.operation.output.stdout, 'hello\n');
const failed = await call('sandbox_exec', { sandbox_id: 'sdk', argv: ['sh', '-c', 'exit 3'] });
assert.equal(failed.operation.output.exit_code, 3);
assert.equal((await call('sandbox_files_read', { sandbox_id: 'sdk', path: 'x.txt' })).content, 'hello\n');

let told = 0;
await call('sandbox_exec', { sandbox_id: 'sdk', argv: ['sleep', '5'] }, { onprogress: () => { told++; } });
assert.ok(told >= 1, 'no progress was told');

const abort = new AbortController();
const slow = client.callTool({ name: 'sandbox_exec', arguments: { sandbox_id: 'sdk', argv: ['sleep', '4242'] } }, undefined, { signal: abort.signal });
setTimeout(() => abort.abort('enough'), 500);
await assert.rejects(slow);
await new Promise((go) => setTimeout(go, 1500));
const left = await call('sandbox_exec', { sandbox_id: 'sdk', argv: ['sh', '-c', "ps | grep -c '[s]leep 4242' || true"] });
assert.equal(left.operation.output.stdout.trim(), '0');

const unknown = await client.callTool({ name: 'sandbox_inspect', arguments: { sandbox_id: 'nobody' } });
assert.equal(unknown.isError, true);
await assert.rejects(client.callTool({ name: 'no_such_tool', arguments: {} }));
for (const { uri } of (await client.listResources()).resources)
  assert.ok((await client.readResource({ uri })).contents[0].text);
for (const { name, arguments: takes = [] } of (await client.listPrompts()).prompts) {
  const given = Object.fromEntries(takes.filter((a) => a.required).map((a) => [a.name, 'x']));
  assert.ok((await client.getPrompt({ name, arguments: given })).messages.length);
}
assert.equal((await call('sandbox_delete', { sandbox_id: 'sdk' })).operation.state, 'succeeded');
assert.deepEqual((await call('sandbox_list', {})).sandboxes, []);
await client.close();
console.log('ok');
