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

  @Test("only the moves of the contract's table are legal")
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

  @Test("each move makes the version grow")
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

  @Test("while it waits for its next try the last one's failure is known, and when the next one is")
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
    // Queued again without a try that failed.
    ends.append(ends[0])
    ends[3].requeue()
    ends.append(ends[1])
    _ = ends[4].fetchAgain(at: clock.now, from: .regular)
    for job in ends { #expect(job.lastFailure == nil && job.nextAttempt == nil, "\(job.phase)") }
  }

  @Test("while its alternatives are asked it is known what the next try is to go by")
  func turned() {
    let failure = JobFailure.fetch(.originStatus(503, retryAfter: 9))
    var job = job()
    job.start(at: clock.now)
    job.turn(to: .alternative(0), after: failure)
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
    job.take(report)
    job.fail(.storageFull, at: clock.now, keptFor: .seconds(1))
    #expect(job.failure == .storageFull && job.expiresAt != nil)
    let isQueued = job.fetchAgain(at: clock.now, from: .regular)
    #expect(isQueued)
    #expect(job.failure == nil && job.expiresAt == nil && job.finishedAt == nil)
    #expect(job.phase == .queued)
    #expect(job.attempts == 1, "attempts count over fetching again as well")
    #expect(job.tries == 0)
    let isQueuedTwice = job.fetchAgain(at: clock.now, from: .regular)
    #expect(!isQueuedTwice, "queued is left alone")
  }

  @Test("cancelling what has finished changes nothing")
  func cancelFinished() {
    var job = job()
    job.start(at: clock.now)
    job.fail(.storageFull, at: clock.now, keptFor: .seconds(1))
    let before = job
    let isCancelled = job.cancel(at: clock.now, keptFor: .seconds(1))
    #expect(!isCancelled)
    #expect(job == before)
  }

  @Test("each report of progress makes it grow, and the next change leaps over all that may come")
  func reports() {
    var job = job()
    job.start(at: clock.now)
    let stored = job
    var shown = stored
    for count in 1...600 {
      var report = ProgressReport(of: shown)
      report.progress = Progress(completed: count, total: 1_000)
      let before = shown.version
      shown.note(report)
      #expect(shown.version == before + 1 && shown.revision == stored.revision)
    }
    var recovered = stored
    recovered.requeue()
    #expect(recovered.version > shown.version)
    #expect(recovered.phase == .queued)
    #expect(recovered.tries == 0, "a crash is not the job's fault")

    var edited = stored
    edited.keepProgress(of: shown)
    let isEdited = edited.edit(priority: .high, tags: nil)
    #expect(isEdited)
    #expect(edited.progress.completed == 600, "memory alone knew it")
    #expect(edited.version > shown.version && edited.reports == 0)
  }

  @Test("however many reports there are, the next change is newer")
  func endlessReports() {
    var job = job()
    job.start(at: clock.now)
    var changed = job
    changed.requeue()
    for _ in 0..<(1 << 20 + 9) { job.note(ProgressReport(of: job)) }
    #expect(changed.version > job.version)
  }

  @Test("what an instance starts is newer than what earlier ones showed and a power cut undid")
  func startedAnew() {
    let queued = job()
    var version = queued.version
    for number: Int64 in 1...20 {
      var job = queued
      job.start(at: clock.now, by: Instance(number: number))
      #expect(job.version > version)
      for _ in 0..<50 {
        job.note(ProgressReport(of: job))
        _ = job.edit(priority: job.priority == .low ? .high : .low, tags: nil)
      }
      version = job.version
    }
    #expect(version < 1 << 53, "a number in JSON")
  }

  @Test("what was shown and then undone gives way to what the job has come to since, and once")
  func lifted() {
    var undone = job()
    undone.start(at: clock.now, by: Instance(number: 9))
    undone.note(ProgressReport(of: undone))
    var other = job()
    other.start(at: clock.now, by: Instance(number: 3))
    #expect(other.version < undone.version)
    var isLifted = other.lift(above: undone)
    #expect(isLifted && other.version > undone.version && other.phase == .loading)
    isLifted = other.lift(above: undone)
    #expect(!isLifted)

    // The same number of changes later it is something else.
    var queued = undone
    queued.requeue()
    var again = queued
    again.start(at: clock.now, by: Instance(number: 9))
    _ = queued.cancel(at: clock.now, keptFor: .zero)
    #expect(queued.isBehind(again) && !again.isBehind(again))
    isLifted = queued.lift(above: again)
    #expect(isLifted && queued.version > again.version)
  }

  @Test("a change is held to the revision that a client saw, whatever progress there is since")
  func condition() {
    var job = job()
    job.start(at: clock.now)
    let taken = job.version
    job.note(ProgressReport(of: job))
    #expect(job.isAt([taken]) && job.isAt([job.version]) && job.isAt(nil))
    #expect(job.isAt([1, taken]) && !job.isAt([1]) && !job.isAt([]))
    let shown = job.version
    _ = job.edit(priority: .high, tags: nil)
    #expect(!job.isAt([taken, shown]) && job.isAt([job.version]))
  }
}
