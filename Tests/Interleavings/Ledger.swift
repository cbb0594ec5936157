import Jobs
import Synchronization

/// The model: the known state of each job, and the states that may follow.
///
/// The store reports each change when it is made. Clients report the states that they received, possibly later.
final class Ledger: Sendable {
  /// The known state of a job.
  struct Entry: Sendable {
    var submission: Submission
    /// The phase in the store.
    var phase: Phase
    var revision: Int
    /// Number of requests to fetch the job again.
    var asked = 0
    /// How many of them restarted the job.
    var begun = 0
    /// How often the job has ended.
    var ends = 0
    /// Whether a client received the answer that the job is purged.
    var isPurged = false
    /// Whether a client requested a purge.
    var mayBePurged = false
    /// Whether a client requested the cancellation, or ended a subscription that holds the job.
    var mayBeCancelled = false
    /// The end that a client received, if no client had requested another fetch.
    var receivedEnd: Phase?
  }

  private let entries = Mutex<[JobID: Entry]>([:])
  private let order = Mutex<[JobID]>([])
  private let faults: Faults

  init(_ faults: Faults) { self.faults = faults }

  /// The jobs, oldest first.
  var jobs: [JobID] { order.withLock { $0 } }

  subscript(id: JobID) -> Entry? { entries.withLock { $0[id] } }

  func change(_ id: JobID, _ body: (inout Entry) -> Void) {
    entries.withLock { entries in
      guard var entry = entries[id] else { return }
      body(&entry)
      entries[id] = entry
    }
  }

  /// Checks a change that the store made.
  func checkStored(_ before: Job?, _ after: Job) {
    // Appended last, because clients may then change the entry at once.
    defer { if before == nil { order.withLock { $0.append(after.id) } } }
    entries.withLock { entries in
      guard var entry = entries[after.id] else {
        faults.expect(before == nil, "\(after.id) was never submitted")
        entries[after.id] = Entry(
          submission: after.submission, phase: after.phase, revision: after.revision,
          ends: after.phase.isFinished ? 1 : 0)
        return
      }
      let word = "\(after.id) from \(entry.phase) to \(after.phase)"
      faults.expect(before != nil, "\(after.id) was submitted twice")
      faults.expect(
        before?.phase == entry.phase, "\(word), which was \(String(describing: before?.phase))")
      faults.expect(
        after.revision > entry.revision || after == before, "\(word) at an old revision")
      if entry.phase != after.phase {
        faults.expect(entry.phase.canBecome(after.phase), "\(word)")
        if entry.phase.isFinished {
          entry.begun += 1
          faults.expect(entry.begun <= entry.asked, "\(word) without a request to fetch again")
        }
        if after.phase.isFinished { entry.ends += 1 }
        faults.expect(
          entry.ends <= entry.begun + 1, "\(word) is end number \(entry.ends)")
        if after.phase == .cancelled {
          faults.expect(entry.mayBeCancelled, "\(word) without a request to cancel")
        }
      }
      (entry.phase, entry.revision) = (after.phase, after.revision)
      entries[after.id] = entry
    }
  }

  /// Checks a state that a client received.
  /// - Parameter before: the entry when the client sent its request.
  func checkReceived(_ job: Job, after before: Entry?, origins: Origins) {
    guard let entry = self[job.id] else { return faults.record("\(job.id) was never submitted") }
    faults.expect(before?.isPurged != true, "\(job.id) was purged and is reported as \(job.phase)")
    guard job.phase.isFinished else {
      if entry.asked == 0, let told = before?.receivedEnd {
        faults.record("\(job.id) was \(told) and is \(job.phase)")
      }
      return
    }
    change(job.id) { entry in
      guard entry.asked == 0 else { return }
      if let told = entry.receivedEnd {
        faults.expect(told == job.phase, "\(job.id) was \(told) and is \(job.phase)")
      }
      entry.receivedEnd = job.phase
    }
    checkEnd(job, origins)
  }

  /// Checks that the job's URLs can have this end.
  private func checkEnd(_ job: Job, _ origins: Origins) {
    let plans = job.submission.urls.compactMap(origins.plan)
    switch job.phase {
    case .success:
      guard let image = job.image, let url = image.url, let plan = origins.plan(of: url) else {
        return faults.record("\(job.id) is a success without an image")
      }
      faults.expect(
        plans.contains { $0.url == url } && plan.mayBeWhole && image.bytes == plan.bytes.count,
        "\(job.id) has \(image.bytes) bytes of \(url.string)")
    case .failure:
      let codes = plans.reduce(into: Set<FailureCode>()) { $0.formUnion($1.failures) }
      // An unreachable origin fails all its URLs.
      let origins = Set(plans.map(\.url.origin))
      let isOut = self.refusing.isDisjoint(with: origins) ? Set<FailureCode>() : [.connectFailure]
      guard let failure = job.failure else {
        return faults.record("\(job.id) failed for no reason")
      }
      faults.expect(
        codes.union(isOut).contains(failure.code), "\(job.id) failed with \(failure)")
    case .queued, .loading, .cancelled: break
    }
  }

  private let refusals = Mutex<Set<String>>([])
  private var refusing: Set<String> { refusals.withLock { $0 } }

  /// Sets the origins that refuse connections for some URL.
  func setRefusing(_ origins: Set<String>) { refusals.withLock { $0 = origins } }
}

extension Submission {
  /// All URLs that the job may fetch.
  var urls: [SourceURL] {
    guard case .url(let url, let lowData) = source else { return [] }
    return [url] + (lowData.map { [$0] } ?? []) + alternatives
  }
}

/// Checks the states that one client received: an older state must not follow a newer one.
struct ReceivedStates {
  private var last: [JobID: Job] = [:]

  mutating func check(_ job: Job, _ faults: Faults) {
    defer { last[job.id] = job }
    guard let before = last[job.id] else { return }
    faults.expect(
      job.version >= before.version,
      "\(job.id) at version \(job.version), \(job.phase), after \(before.version), \(before.phase)")
    if job.phase == .loading, before.phase == .loading, job.revision == before.revision {
      faults.expect(
        job.attempts != before.attempts || job.progress.completed >= before.progress.completed,
        "\(job.id) has \(job.progress.completed) bytes after \(before.progress.completed)")
    }
    if job.version == before.version {
      faults.expect(job == before, "\(job.id) has two states at version \(job.version)")
    }
  }
}
