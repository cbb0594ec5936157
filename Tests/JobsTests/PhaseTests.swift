import TestSupport
import Testing

@testable import Jobs

@Suite("A job's phase")
struct PhaseTests {
  private let clock = ManualClock()
  private func job() -> Job {
    Job(
      id: JobID(at: clock.now), owner: .anonymous,
      submission: Submission(source: .url(SourceURL("http://a.example/x.png")!, lowData: nil)),
      priority: .normal, tags: [], createdAt: clock.now)
  }

  @Test("only the transitions of the API are legal")
  func table() {
    let legal: Set<[Phase]> = [
      [.queued, .loading], [.queued, .cancelled], [.queued, .failure], [.queued, .success],
      [.loading, .success], [.loading, .failure], [.loading, .cancelled], [.loading, .queued],
      [.failure, .queued], [.cancelled, .queued], [.success, .queued],
    ]
    for phase in Phase.allCases {
      for next in Phase.allCases {
        #expect(phase.canBecome(next) == legal.contains([phase, next]), "\(phase) to \(next)")
      }
    }
  }

  @Test("each change increases the version")
  func versions() {
    var job = job()
    var versions = [job.version]
    job.start(at: clock.now)
    versions.append(job.version)
    job.retry(after: .internal, from: .regular, notBefore: clock.now)
    versions.append(job.version)
    job.start(at: clock.now)
    versions.append(job.version)
    job.fail(.storageFull, at: clock.now, keptFor: .seconds(1))
    versions.append(job.version)
    let isQueued = job.fetchAgain(at: clock.now, from: .regular)
    #expect(isQueued)
    versions.append(job.version)
    #expect(zip(versions, versions.dropFirst()).allSatisfy { $0 < $1 })
  }

  @Test("a job that waits for its next try has its last failure and the time of that try")
  func lastFailure() {
    let failure = JobFailure.fetch(.timeout(seconds: 1))
    var waiting = job()
    #expect(waiting.lastFailure == nil && waiting.nextAttempt == nil)
    waiting.start(at: clock.now)
    waiting.retry(after: failure, from: .regular, notBefore: clock.now + .seconds(7))
    #expect(waiting.lastFailure == failure && waiting.nextAttempt == clock.now + .seconds(7))
    #expect(waiting.failure == nil)
    var ends = [waiting, waiting, waiting]
    ends[0].start(at: clock.now)
    _ = ends[1].cancel(at: clock.now, keptFor: .seconds(1))
    ends[2].fail(.notCached, at: clock.now, keptFor: .seconds(1))
    // These jobs are queued again, but not because a try failed.
    ends.append(ends[0])
    ends[3].requeue()
    ends.append(ends[1])
    _ = ends[4].fetchAgain(at: clock.now, from: .regular)
    for job in ends { #expect(job.lastFailure == nil && job.nextAttempt == nil, "\(job.phase)") }
  }

  @Test("only the success or failure of a job of a batch becomes cancelled")
  func discarded() {
    let single = job()
    let line = Job(
      id: single.id, owner: single.owner, submission: single.submission, priority: .normal,
      tags: [],
      createdAt: clock.now, batch: BatchPosition(id: single.id, line: 1))
    let moment = clock.now + .seconds(5)
    for var before in [single, line] {
      before.start(at: clock.now)
      let isLine = before.batch != nil
      var failed = before
      failed.applyLastReport(ProgressReport(shownOf: before))
      failed.attempts = 3
      failed.fail(.storageFull, at: moment, keptFor: .seconds(60))
      #expect(failed.isResultInBatch(after: before) == isLine)
      var ended = failed
      ended.discardResult(after: before)
      #expect(ended.phase == (isLine ? .cancelled : .failure))
      #expect(ended.failure == (isLine ? nil : .storageFull) && ended.attempts == 3)
      #expect(ended.finishedAt == moment && ended.expiresAt == failed.expiresAt)
      #expect(ended.version == failed.version)
      var (queued, cancelled, edited) = (before, before, failed)
      queued.retry(after: .internal, from: .regular, notBefore: moment)
      _ = cancelled.cancel(at: moment, keptFor: .seconds(60))
      _ = edited.edit(priority: nil, tags: ["new"])
      for (before, after) in [(before, queued), (before, cancelled), (failed, edited)] {
        var kept = after
        kept.discardResult(after: before)
        #expect(kept == after)
      }
    }
  }

  @Test("while alternatives are tried, the job keeps the failure that decides about a retry")
  func turned() {
    let failure = JobFailure.fetch(.originStatus(503, retryAfter: 9))
    var job = job()
    job.start(at: clock.now)
    job.continueTry(with: .alternative(0), after: failure)
    #expect(job.phase == .queued && job.lastFailure == failure && job.nextAttempt == nil)
    job.start(at: clock.now)
    job.requeue()
    job.start(at: clock.now)
    #expect(job.lastFailure == failure && job.tries == 1)
    job.retry(after: failure, from: .regular, notBefore: clock.now)
    job.start(at: clock.now)
    #expect(job.lastFailure == nil && job.tries == 2)
  }

  @Test("fetching again clears the error and the expiry")
  func fetchAgain() {
    var job = job()
    job.start(at: clock.now)
    var report = ProgressReport(of: job)
    report.attempts = 1
    job.applyLastReport(report)
    job.fail(.storageFull, at: clock.now, keptFor: .seconds(1))
    #expect(job.failure == .storageFull && job.expiresAt != nil)
    let isQueued = job.fetchAgain(at: clock.now, from: .regular)
    #expect(isQueued)
    #expect(job.failure == nil && job.expiresAt == nil && job.finishedAt == nil)
    #expect(job.phase == .queued)
    #expect(job.attempts == 1, "attempts also count earlier runs")
    #expect(job.tries == 0)
    let isQueuedTwice = job.fetchAgain(at: clock.now, from: .regular)
    #expect(!isQueuedTwice, "a queued job stays unchanged")
  }

  @Test("cancelling a finished job changes nothing")
  func cancelFinished() {
    var job = job()
    job.start(at: clock.now)
    job.fail(.storageFull, at: clock.now, keptFor: .seconds(1))
    let before = job
    let isCancelled = job.cancel(at: clock.now, keptFor: .seconds(1))
    #expect(!isCancelled)
    #expect(job == before)
  }

  @Test("a progress report increases the version by one, and the next change by more")
  func reports() {
    var job = job()
    job.start(at: clock.now)
    let stored = job
    var shown = stored
    for count in 1...600 {
      var report = ProgressReport(of: shown)
      report.progress = Progress(completed: count, total: 1_000)
      let before = shown.version
      shown.applyReport(report)
      #expect(shown.version == before + 1 && shown.revision == stored.revision)
    }
    var recovered = stored
    recovered.requeue()
    #expect(recovered.version > shown.version)
    #expect(recovered.phase == .queued)
    #expect(recovered.tries == 0, "a crash does not count as a try")

    var edited = stored
    edited.copyProgress(from: shown)
    let isEdited = edited.edit(priority: .high, tags: nil)
    #expect(isEdited)
    #expect(edited.progress.completed == 600, "the progress is copied from memory")
    #expect(edited.version > shown.version && edited.reports == 0)
  }

  @Test("the next change has a higher version after any number of progress reports")
  func endlessReports() {
    var job = job()
    job.start(at: clock.now)
    var changed = job
    changed.requeue()
    for _ in 0..<(1 << 20 + 9) { job.applyReport(ProgressReport(of: job)) }
    #expect(changed.version > job.version)
  }

  @Test("a progress report that arrives after a later one changes nothing")
  func lateReport() {
    var job = job()
    job.start(at: clock.now)
    func report(_ requests: Int, bytes: Int, previews: Int = 0) -> ProgressReport {
      var load = LoadProgress()
      (load.requests, load.bytes.completed, load.previews) = (requests, bytes, previews)
      return ProgressReport(of: job, load)
    }
    let stored = job
    let (early, middle, late) = (report(1, bytes: 5), report(1, bytes: 7), report(2, bytes: 3))
    let preview = report(2, bytes: 3, previews: 1)
    for (next, before) in [
      (early, []), (middle, [early]), (late, [early, middle]), (preview, [late]),
    ] {
      let isApplied = job.applyReport(next)
      #expect(isApplied && job.progress == next.progress && job.attempts == next.attempts)
      let shown = job
      for stale in before {
        let isApplied = job.applyReport(stale)
        #expect(!isApplied && job == shown)
      }
    }
    var copied = stored
    copied.copyProgress(from: job)
    #expect(copied.progress.completed == 3 && copied.attempts == 2 && copied.previews == 1)
    var old = stored
    old.applyReport(middle)
    copied.copyProgress(from: old)
    #expect(copied.progress.completed == 3, "an earlier request has more bytes")
  }

  @Test("a started job is newer than versions of earlier instances that a power cut undid")
  func startedAnew() {
    let queued = job()
    var version = queued.version
    for number: Int64 in 1...20 {
      var job = queued
      job.start(at: clock.now, by: Instance(number: number))
      #expect(job.version > version)
      for _ in 0..<50 {
        job.applyReport(ProgressReport(of: job))
        _ = job.edit(priority: job.priority == .low ? .high : .low, tags: nil)
      }
      version = job.version
    }
    #expect(version < 1 << 53, "a JSON number can represent the version")
  }

  @Test("a state that was shown and then undone is replaced by the present one, once")
  func lifted() {
    var undone = job()
    undone.start(at: clock.now, by: Instance(number: 9))
    undone.applyReport(ProgressReport(of: undone))
    var other = job()
    other.start(at: clock.now, by: Instance(number: 3))
    #expect(other.version < undone.version)
    var isLifted = other.raiseRevision(above: undone)
    #expect(isLifted && other.version > undone.version && other.phase == .loading)
    isLifted = other.raiseRevision(above: undone)
    #expect(!isLifted)

    // After the same number of changes the job is in another phase.
    var queued = undone
    queued.requeue()
    var again = queued
    again.start(at: clock.now, by: Instance(number: 9))
    _ = queued.cancel(at: clock.now, keptFor: .zero)
    #expect(queued.isBehind(again) && !again.isBehind(again))
    isLifted = queued.raiseRevision(above: again)
    #expect(isLifted && queued.version > again.version)
  }

  @Test("a conditional change compares the revision and ignores progress reports")
  func condition() {
    var job = job()
    job.start(at: clock.now)
    let taken = job.version
    job.applyReport(ProgressReport(of: job))
    #expect(
      job.isUnchanged(since: [taken]) && job.isUnchanged(since: [job.version])
        && job.isUnchanged(since: nil))
    #expect(
      job.isUnchanged(since: [1, taken]) && !job.isUnchanged(since: [1])
        && !job.isUnchanged(since: []))
    let shown = job.version
    _ = job.edit(priority: .high, tags: nil)
    #expect(!job.isUnchanged(since: [taken, shown]) && job.isUnchanged(since: [job.version]))
  }
}
