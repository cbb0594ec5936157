internal import Jobs
internal import Synchronization
internal import Waiting

/// The times of announcements (``AnnouncedChanges``).
struct AnnouncementRules: Sendable {
  /// How long announced jobs are read from the store. Much longer than the time from an announcement to its change.
  var pause = Duration.seconds(60)
  /// How long after its announcement a change may begin. The store carries it out or fails within half a minute.
  var validity = Duration.seconds(20)
  /// The age from which a heartbeat does not prove that events arrive. There is one each second.
  var patience = Duration.seconds(3)
  /// The maximum number of jobs and batches whose announcements are remembered.
  var most = 10_000
}

/// Which finished jobs this instance may answer from memory, although other instances can change them. A value: the
/// caller guards it with its own lock.
///
/// Successful jobs are read often and changed rarely. So a read is answered without a question to others, and a
/// change has two steps:
///
/// 1. The instance that changes the job announces it (``Announcer``). Every other instance then reads the job from the
///    store for a while (`pause`), and confirms that.
/// 2. The instance changes the job once every live instance has confirmed, or after `patience`.
///
/// An instance that does not confirm in time may be stopped or cut off. It answers nothing from memory once its lease
/// has ended or its last heartbeat is older than `patience`. After its start, or after events were lost, an instance
/// answers nothing from memory for `pause`, because a change may have been announced before.
struct AnnouncedChanges {
  private let rules: AnnouncementRules
  /// When the pauses end.
  private var ends: [JobID: ContinuousClock.Instant] = [:]
  /// Since when all events have been received; nil: none yet.
  private var start: ContinuousClock.Instant?
  /// When the last heartbeat was asked for; nil: none yet.
  private var heartbeat: ContinuousClock.Instant?

  init(_ rules: AnnouncementRules) { self.rules = rules }

  /// Records a heartbeat that was asked for at `asked` and arrived at `now`.
  mutating func recordHeartbeat(asked: ContinuousClock.Instant, at now: ContinuousClock.Instant) {
    start = start ?? now
    heartbeat = max(heartbeat ?? asked, asked)
  }

  /// Records that events may have been lost until `now`.
  mutating func recordLoss(at now: ContinuousClock.Instant) { (start, heartbeat) = (now, nil) }

  /// Records an announcement. The ID is that of a job or of a batch.
  mutating func add(_ id: JobID, at now: ContinuousClock.Instant) {
    if ends.count >= rules.most { ends = ends.filter { $0.value > now } }
    guard ends.count < rules.most else { return recordLoss(at: now) }
    ends[id] = now + rules.pause
  }

  /// Whether no change of the job can be under way that this instance does not know of. A state that is read then is
  /// current until the next announcement.
  func isSettled(_ job: Job, at now: ContinuousClock.Instant) -> Bool {
    guard let start, now >= start + rules.pause else { return false }
    return !isPaused(job.id, at: now) && !(job.batch.map { isPaused($0.id, at: now) } ?? false)
  }

  private func isPaused(_ id: JobID, at now: ContinuousClock.Instant) -> Bool {
    ends[id].map { now < $0 } ?? false
  }

  /// Whether an announcement that another instance no longer waits for would have arrived.
  func hearsAll(at now: ContinuousClock.Instant) -> Bool {
    heartbeat.map { now < $0 + rules.patience } ?? false
  }
}

extension Job {
  /// Whether an instance that knows this state may answer reads from memory, although others share the store.
  var isAnsweredFromMemory: Bool { phase == .success && isFinal }
}

/// Permission to change jobs that other instances may answer from memory.
struct Announcement: Sendable {
  private let end: ContinuousClock.Instant?

  /// Permits changes of all jobs.
  static let needless = Announcement(until: nil)
  /// Permits only changes of jobs that no instance answers from memory.
  static let missing = Announcement(until: .now)

  /// - Parameter end: when the other instances may use their memory again; nil: never.
  init(until end: ContinuousClock.Instant?) { self.end = end }

  func permits(_ job: Job) -> Bool {
    !job.isAnsweredFromMemory || end.map { .now < $0 } ?? true
  }
}

/// Announces changes of finished jobs to the other instances, and waits until they have confirmed.
final class Announcer: Sendable {
  /// The confirmations of one announcement.
  private struct Replies {
    var instances: Set<Instance> = []
    /// Nil until the store has told the live instances.
    var expected: Set<Instance>?
    let all = Latch()

    func openIfComplete() { if expected?.isSubset(of: instances) == true { all.open() } }
  }

  private let membership: Membership
  private let snapshots: JobSnapshots
  private let rules: AnnouncementRules
  private let replies = Mutex<[AnnouncementID: Replies]>([:])
  private let count = Atomic<Int64>(0)

  init(_ membership: Membership, _ snapshots: JobSnapshots, _ rules: AnnouncementRules) {
    (self.membership, self.snapshots, self.rules) = (membership, snapshots, rules)
  }

  /// The permission to change jobs before any announcement.
  var unannounced: Announcement { membership.isAlone ? .needless : .missing }

  /// Returns once no other instance answers these jobs from memory.
  func announce(_ jobs: AnnouncedJobs) async throws(StoreError) -> Announcement {
    guard !membership.isAlone else { return .needless }
    let end = ContinuousClock.now + rules.validity
    let id = AnnouncementID(
      instance: membership.instance, number: count.wrappingAdd(1, ordering: .relaxed).newValue)
    let all = replies.withLock { replies in
      let new = Replies()
      replies[id] = new
      return new.all
    }
    defer { replies.withLock { $0[id] = nil } }
    snapshots.recordAnnouncement(of: jobs)
    let others = try await membership.announce(.announced(jobs, id))
    replies.withLock { replies in
      replies[id]?.expected = others
      replies[id]?.openIfComplete()
    }
    // A separate task, because the caller's may be cancelled.
    await Task { [rules] in await all.wait(until: .now + rules.patience) }.value
    return Announcement(until: end)
  }

  func recordConfirmation(of id: AnnouncementID, by instance: Instance) {
    replies.withLock { replies in
      replies[id]?.instances.insert(instance)
      replies[id]?.openIfComplete()
    }
  }
}
