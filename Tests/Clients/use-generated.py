"""Uses the client that openapi-python-client made (the package `generated`) with a real service, at API, and
an origin, at ORIGIN, that has /photo.jpg and /slow.jpg."""

import hashlib
import io
import json
import os
import uuid

from generated import Client
from generated.api.batches import (
    add_lines, begin_batch, cancel_batch, close_batch, get_batch, get_results, list_batches, retry_batch)
from generated.api.jobs import (
    cancel_job, edit_job, fetch_job_again, get_image, get_job, list_jobs, submit_batch, submit_form, submit_image,
    submit_job)
from generated.api.operations import get_description_as_json, get_problem_page, is_ready
from generated.api.service import get_cache, get_network, set_network
from generated.models import (
    Batch, BatchResult, BatchRetry, BatchState, CacheMode, CapturedOptions, FailureCode, GetImageFit, GetImageFormat,
    GoneJob, ImageForm, Job, JobPatch, Network, NewBatch, NewLocalJob, NewURLJob, Phase, Priority, Problem, URLSource)
from generated.types import File

client = Client(base_url=os.environ["API"], raise_on_unexpected_status=True, timeout=60)
origin = os.environ["ORIGIN"]
# Distinguishes these jobs from those of earlier runs in the same service.
run = uuid.uuid4().hex


def finished(job):
    while job.phase in (Phase.QUEUED, Phase.LOADING):
        job = get_job.sync(job.id, client=client, wait=20)
        assert isinstance(job, Job), job
    return job


# A URL is submitted and polled; its image and a variant are read.
job = submit_job.sync(client=client, body=NewURLJob(url=origin + "/photo.jpg", priority=Priority.HIGH, cache=CacheMode.RELOAD))
assert isinstance(job, Job) and isinstance(job.source, URLSource), job
job = finished(job)
assert job.phase == Phase.SUCCESS and job.error is None, job
assert (job.image.display.width, job.image.format_) == (480, "jpeg"), job.image
assert job.timings.fetch_ms > 0 and job.created_at.tzinfo is not None
image = get_image.sync(job.id, client=client)
assert isinstance(image, File), image
assert hashlib.sha256(image.payload.read()).hexdigest() == job.image.sha256
variant = get_image.sync(job.id, client=client, width=32, fit=GetImageFit.COVER, format_=GetImageFormat.WEBP)
assert variant.payload.read()[8:12] == b"WEBP"

# Several jobs in one request, and the list of jobs.
batch = submit_batch.sync(
    client=client, body=[NewURLJob(url=origin + "/photo.jpg", tags=[run]), NewLocalJob(local="photo.png", tags=[run])],
    wait=20)
assert [job.phase for job in batch.jobs] == [Phase.SUCCESS, Phase.SUCCESS], batch
first = list_jobs.sync(client=client, tag=run, phase=[Phase.SUCCESS], limit=1)
second = list_jobs.sync(client=client, tag=run, limit=1, cursor=first.next_cursor)
assert [page.jobs[0].id for page in (first, second)] == [job.id for job in reversed(batch.jobs)]
assert second.next_cursor is None

# Batches: as JSON, then as a file; their results line by line.
urls = NewBatch(jobs=[origin + "/photo.jpg", NewURLJob(url=origin + "/none.jpg"), "nowhere"])
whole = begin_batch.sync(client=client, body=urls, name=run, defaults=json.dumps({"priority": "high"}))
assert isinstance(whole, Batch) and whole.received == 3 and whole.name == run, whole
lines = io.BytesIO(json.dumps(origin + "/photo.jpg").encode() + b"\n" + json.dumps({"url": origin + "/none.jpg"}).encode())
opened = begin_batch.sync(client=client, open_=True)
assert opened.state == BatchState.RECEIVING, opened
assert add_lines.sync(opened.id, client=client, from_=0, body=File(payload=lines)).received == 2
close_batch.sync(opened.id, client=client)
for batch, phases in ((whole, ["success", "failure", "rejected"]), (opened, ["success", "failure"])):
    told = get_results.sync(batch.id, client=client, follow=True).payload.read().splitlines()
    results = [BatchResult.from_dict(json.loads(line)) for line in told]
    assert [result.phase.value for result in results] == phases, results
    assert (results[0].image.format_, results[1].error.code) == ("jpeg", "origin_status")
    finished_batch = get_batch.sync(batch.id, client=client, wait=20)
    assert finished_batch.state == BatchState.FINISHED and finished_batch.codes["origin_status"] == 1, finished_batch
first_line = list_jobs.sync(client=client, batch=whole.id, phase=[Phase.SUCCESS]).jobs[0]
assert (first_line.priority, first_line.batch.line) == (Priority.HIGH, 1), first_line
retried = retry_batch.sync(opened.id, client=client, body=BatchRetry(codes=[FailureCode.ORIGIN_STATUS]))
assert retried.counts.failure + retried.counts.queued + retried.counts.loading == 1, retried
assert {batch.id for batch in list_batches.sync(client=client, limit=2).batches} == {whole.id, opened.id}
cache = get_cache.sync(client=client)
assert cache.entries > 0, cache
assert cancel_batch.sync(opened.id, client=client, purge=True) is None

# Uploaded images.
image.payload.seek(0)
upload = submit_image.sync(client=client, body=File(payload=image.payload), tags=["a", "b"], wait=20)
assert (upload.phase, upload.tags) == (Phase.SUCCESS, ["a", "b"]), upload
image.payload.seek(0)
form = ImageForm(
    image=File(payload=image.payload, file_name="a.jpg", mime_type="image/jpeg"), options=CapturedOptions(tags=["c"]))
upload = submit_form.sync(client=client, body=form, wait=20)
assert isinstance(upload, Job) and (upload.phase, upload.tags) == (Phase.SUCCESS, ["c"]), upload
assert upload.source.captured.bytes_ == job.image.bytes_

# Errors are problems, and a failed job has an error.
refused = submit_job.sync(client=client, body=NewURLJob(url="none"))
assert isinstance(refused, Problem) and refused.code == "invalid_url", refused
assert refused.errors[0].pointer == "/url"
failed = finished(submit_job.sync(client=client, body=NewURLJob(url=origin + "/none.jpg")))
assert (failed.error.code, failed.error.origin_status) == ("origin_status", 404), failed
assert "origin_status" in get_problem_page.sync("origin_status", client=client)
assert isinstance(get_image.sync(failed.id, client=client), Problem)
blocked = finished(submit_job.sync(client=client, body=NewURLJob(url="http://10.0.0.1/")))
assert blocked.error.reason.value == "address", blocked

# Changes of a job.
slow = submit_job.sync(
    client=client, body=NewURLJob(url=origin + "/slow.jpg", cache=CacheMode.NO_STORE), idempotency_key=run)
assert edit_job.sync(slow.id, client=client, body=JobPatch(priority=None, tags=["x"])).tags == ["x"]
assert cancel_job.sync(slow.id, client=client).phase == Phase.CANCELLED
assert fetch_job_again.sync(slow.id, client=client).phase in (Phase.QUEUED, Phase.LOADING)
assert cancel_job.sync(slow.id, client=client, purge=True) is None
repeated = submit_job.sync(
    client=client, body=NewURLJob(url=origin + "/slow.jpg", cache=CacheMode.NO_STORE), idempotency_key=run)
assert isinstance(repeated, GoneJob) and repeated.phase == "gone", repeated

# The service.
assert is_ready.sync(client=client).status.value == "ready"
assert set_network.sync(client=client, body=Network(constrained=True)).constrained
assert get_network.sync(client=client).constrained
assert not set_network.sync(client=client, body=Network(constrained=False)).constrained
assert get_description_as_json.sync(client=client).to_dict()["openapi"] == "3.1.0"
print("done")
