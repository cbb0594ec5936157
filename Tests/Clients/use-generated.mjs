// Uses the TypeScript client made by openapi-generator with a real service, at API, and an origin, at
// ORIGIN, that has /photo.jpg and /slow.jpg. The first argument is the path of the generated client.

import assert from 'node:assert/strict';
import { createHash, randomUUID } from 'node:crypto';
import { pathToFileURL } from 'node:url';

const made = await import(pathToFileURL(process.argv[2]));
const configuration = new made.Configuration({ basePath: process.env.API });
const jobs = new made.JobsApi(configuration);
const service = new made.ServiceApi(configuration);
const operations = new made.OperationsApi(configuration);
const origin = process.env.ORIGIN;
// Distinguishes these jobs from those of earlier runs in the same service.
const run = randomUUID();
const bytes = async (blob) => Buffer.from(await blob.arrayBuffer());

async function finished(job) {
  while (job.phase === 'queued' || job.phase === 'loading') job = await jobs.getJob({ id: job.id, wait: 20 });
  return job;
}

async function problem(promise) {
  const error = await promise.then(() => assert.fail('it was done'), (error) => error);
  return made.ProblemFromJSON(await error.response.json());
}

// A URL is submitted and polled; its image and a variant are read.
const url = `${origin}/photo.jpg`;
const job = await finished(await jobs.submitJob({ newJob: { url, priority: 'high', tags: ['one'] } }));
assert.equal(job.phase, 'success');
assert.equal(job.source.url, url);
assert.deepEqual(job.image.display, { width: 480, height: 320 });
assert.ok(job.createdAt instanceof Date && job.error === null);
const image = await jobs.getImage({ id: job.id });
assert.equal(createHash('sha256').update(await bytes(image)).digest('hex'), job.image.sha256);
const variant = await jobs.getImage({ id: job.id, width: 32, fit: 'cover', format: 'webp' });
assert.equal((await bytes(variant)).subarray(8, 12).toString(), 'WEBP');

// Several jobs in one request, and the list of jobs.
const newJob = [{ url, tags: [run] }, { local: 'photo.png', tags: [run] }];
const batch = await jobs.submitBatch({ newJob, wait: 20 });
assert.deepEqual(batch.jobs.map((job) => job.phase), ['success', 'success']);
assert.equal(batch.jobs[1].source.local, 'photo.png');
const first = await jobs.listJobs({ tag: run, phase: ['success', 'failure'], limit: 1 });
const second = await jobs.listJobs({ tag: run, limit: 1, cursor: first.nextCursor });
assert.deepEqual([first.jobs[0].id, second.jobs[0].id], batch.jobs.map((job) => job.id).reverse());
assert.equal(second.nextCursor, null);

// Uploaded images.
const upload = await jobs.submitImage({ body: image, tags: ['a', 'b'], wait: 20 });
assert.deepEqual([upload.phase, upload.tags], ['success', ['a', 'b']]);
const form = await jobs.submitForm({ image, options: { tags: ['c'] }, wait: 20 });
assert.deepEqual([form.phase, form.tags], ['success', ['c']]);
assert.equal(form.source.captured.bytes, job.image.bytes);

// Errors are problems, and a failed job has an error.
const refused = await problem(jobs.submitJob({ newJob: { url: 'none' } }));
assert.deepEqual([refused.code, refused.errors[0].pointer], ['invalid_url', '/url']);
const failed = await finished(await jobs.submitJob({ newJob: { url: `${origin}/none.jpg` } }));
assert.deepEqual([failed.error.code, failed.error.originStatus], ['origin_status', 404]);
assert.equal((await problem(jobs.getImage({ id: failed.id }))).error.code, 'origin_status');

// Changes of a job.
const slow = await jobs.submitJob({ newJob: { url: `${origin}/slow.jpg`, cache: 'no-store' }, idempotencyKey: run });
assert.deepEqual((await jobs.editJob({ id: slow.id, jobPatch: { tags: ['x'] } })).tags, ['x']);
assert.equal((await jobs.cancelJob({ id: slow.id })).phase, 'cancelled');
assert.ok(['queued', 'loading'].includes((await jobs.fetchJobAgain({ id: slow.id })).phase));
await jobs.cancelJob({ id: slow.id, purge: true });
const again = { newJob: { url: `${origin}/slow.jpg`, cache: 'no-store' }, idempotencyKey: run };
assert.deepEqual(await jobs.submitJob(again), { id: slow.id, phase: 'gone' });

// The service.
assert.equal((await operations.isReady()).status, 'ready');
assert.ok((await service.getCache()).entries > 0);
assert.equal((await service.setNetwork({ network: { constrained: true } })).constrained, true);
assert.equal((await service.setNetwork({ network: { constrained: false } })).constrained, false);
assert.equal((await operations.getDescriptionAsJSON()).openapi, '3.1.0');
console.log('done');
