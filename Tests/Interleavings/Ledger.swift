import Jobs
import Synchronization

/// The model: what is known of each job by what its clients and its store saw, and what may be seen of it next.
///
/// The store tells of each change as it is made, clients of what they were shown, whenever they get to that.
final class Ledger: Sendable {
  /// What is known of a job.
  struct Entry: Sendable {
    var submission: Submission
    /// In the store.
    var phase: Phase
    var revision: Int
    /// How often its owner has begun to ask for it again.
    var asked = 0
    /// How often it was begun anew of those.
    var begun = 0
    /// How often it has come to an end.
    var ends = 0
    /// Its owner was told that it is purged.
    var isPurged = false
    /// Somebody may have purged it.
    var mayBePurged = false
    /// Whether anybody asked for its cancellation, or left it.
    var mayBeCancelled = false
    /// An end that a client was told when nobody had asked for it again.
    var told: Phase?
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

  /// The store made a change.
  func stored(_ before: Job?, _ after: Job) {
    // Whoever finds it there may change its entry at once.
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
          faults.expect(entry.begun <= entry.asked, "\(word), which nobody asked for")
        }
        if after.phase.isFinished { entry.ends += 1 }
        faults.expect(
          entry.ends <= entry.begun + 1, "\(word), its end number \(entry.ends)")
        if after.phase == .cancelled {
          faults.expect(entry.mayBeCancelled, "\(word), which nobody asked for")
        }
      }
      (entry.phase, entry.revision) = (after.phase, after.revision)
      entries[after.id] = entry
    }
  }

  /// A client was shown a job.
  /// - Parameter before: what was known of it when the client asked.
  func shown(_ job: Job, after before: Entry?, origins: Origins) {
    guard let entry = self[job.id] else { return faults.note("\(job.id) is nobody's") }
    faults.expect(before?.isPurged != true, "\(job.id) was purged and is shown as \(job.phase)")
    guard job.phase.isFinished else {
      if entry.asked == 0, let told = before?.told {
        faults.note("\(job.id) was \(told) and is \(job.phase)")
      }
      return
    }
    change(job.id) { entry in
      guard entry.asked == 0 else { return }
      if let told = entry.told {
        faults.expect(told == job.phase, "\(job.id) was \(told) and is \(job.phase)")
      }
      entry.told = job.phase
    }
    judge(job, origins)
  }

  /// An end is one that the job's URLs can have.
  private func judge(_ job: Job, _ origins: Origins) {
    let plans = job.submission.urls.compactMap(origins.plan)
    switch job.phase {
    case .success:
      guard let image = job.image, let url = image.url, let plan = origins.plan(of: url) else {
        return faults.note("\(job.id) is a success without an image")
      }
      faults.expect(
        plans.contains { $0.url == url } && plan.mayBeWhole && image.bytes == plan.bytes.count,
        "\(job.id) has \(image.bytes) bytes of \(url.string)")
    case .failure:
      let codes = plans.reduce(into: Set<FailureCode>()) { $0.formUnion($1.failures) }
      // An origin that can't be reached fails all its URLs.
      let origins = Set(plans.map(\.url.origin))
      let isOut = self.refusing.isDisjoint(with: origins) ? Set<FailureCode>() : [.connectFailure]
      guard let failure = job.failure else { return faults.note("\(job.id) failed for no reason") }
      faults.expect(
        codes.union(isOut).contains(failure.code), "\(job.id) failed with \(failure)")
    case .queued, .loading, .cancelled: break
    }
  }

  private let refusals = Mutex<Set<String>>([])
  private var refusing: Set<String> { refusals.withLock { $0 } }

  /// Origins of which some URL can't be reached.
  func note(refusing origins: Set<String>) { refusals.withLock { $0 = origins } }
}

extension Submission {
  /// All that it may ask for.
  var urls: [SourceURL] {
    guard case .url(let url, let lowData) = source else { return [] }
    return [url] + (lowData.map { [$0] } ?? []) + alternatives
  }
}

/// What one client has seen of a job: it never sees an older state after a newer one.
struct Sight {
  private var last: [JobID: Job] = [:]

  mutating func see(_ job: Job, _ faults: Faults) {
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
