internal import Jobs
internal import Logging
internal import Synchronization
internal import Waiting

/// The times of announcements (``AnnouncedChanges``).
struct AnnouncementRules: Sendable {
  /// How long announced jobs are read from the store. Much longer than the time from an announcement to its change.
  var pause = Duration.seconds(60)
  /// How long after its announcement a change may begin. The store carries it out or fails within half a minute.
  var validity = Duration.seconds(20)
  /// The longest wait for confirmations, and the age up to which a heartbeat proves that events arrive. There is one
  /// each second.
  var patience = Duration.seconds(3)
  /// The maximum number of jobs and batches whose announcements are remembered.
  var maxRemembered = 100_000
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
/// An instance that does not confirm in time may be stopped or cut off. It answers nothing from memory once its last
/// heartbeat is older than `patience`. After its start, or after events were lost, an instance answers nothing from
/// memory for `pause`, because a change may have been announced before.
struct AnnouncedChanges {
  private let rules: AnnouncementRules
  /// When jobs and batches were announced last.
  private var times: [JobID: ContinuousClock.Instant] = [:]
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
  mutating func recordLoss(at now: ContinuousClock.Instant) {
    (start, heartbeat, times) = (now, nil, [:])
  }

  /// Records an announcement. The ID is that of a job or of a batch.
  mutating func add(_ id: JobID, at now: ContinuousClock.Instant) {
    if times.count >= rules.maxRemembered { recordLoss(at: now) }
    times[id] = now
  }

  /// Whether no change of the job can be under way. So a state that is read now is current until the next announcement.
  func isSettled(_ job: Job, at now: ContinuousClock.Instant) -> Bool {
    lastDoubt(about: job).map { now >= $0 + rules.pause } ?? false
  }

  /// Whether a state that was settled at `moment` is still current: no change was announced since, and every
  /// announcement that an instance no longer waits for has arrived.
  func isCurrent(
    _ job: Job, settled moment: ContinuousClock.Instant, at now: ContinuousClock.Instant
  ) -> Bool {
    guard let doubt = lastDoubt(about: job), let heartbeat else { return false }
    return moment > doubt && now < heartbeat + rules.patience
  }

  /// The last time when a change of the job was announced or events may have been lost; nil: none was received yet.
  private func lastDoubt(about job: Job) -> ContinuousClock.Instant? {
    guard let start else { return nil }
    return max(start, times[job.id] ?? start, job.batch.flatMap { times[$0.id] } ?? start)
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

  /// - Parameter end: the time after which a change may no longer begin; nil: none.
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
    /// The other instances; nil until the store has returned them.
    var expected: Set<Instance>?
    let all = Latch()

    func openIfComplete() { if expected?.isSubset(of: instances) == true { all.open() } }
  }

  private let membership: Membership
  private let snapshots: JobSnapshots
  private let rules: AnnouncementRules
  private let log: Logger
  private let replies = Mutex<[AnnouncementID: Replies]>([:])
  private let count = Atomic<Int64>(0)

  init(
    _ membership: Membership, _ snapshots: JobSnapshots, _ rules: AnnouncementRules, log: Logger
  ) {
    (self.membership, self.snapshots) = (membership, snapshots)
    (self.rules, self.log) = (rules, log)
  }

  /// The permission to change jobs before any announcement.
  var unannounced: Announcement { membership.isAlone ? .needless : .missing }

  /// Returns once no other instance answers the job, or the jobs of the batch, from memory.
  func announce(_ subject: JobID) async throws(StoreError) -> Announcement {
    guard !membership.isAlone else { return .needless }
    let end = ContinuousClock.now + rules.validity
    let id = AnnouncementID(
      instance: membership.instance, number: count.wrappingAdd(1, ordering: .relaxed).newValue)
    let new = Replies()
    replies.withLock { $0[id] = new }
    defer { replies.withLock { $0[id] = nil } }
    snapshots.recordAnnouncement(of: subject)
    let others = try await membership.announce(.announced(subject, id))
    replies.withLock { replies in
      replies[id]?.expected = others
      replies[id]?.openIfComplete()
    }
    // A separate task, because the caller's may be cancelled.
    await Task { [rules] in await new.all.wait(until: .now + rules.patience) }.value
    if !new.all.isOpen { logMissing(id) }
    return Announcement(until: end)
  }

  private func logMissing(_ id: AnnouncementID) {
    let missing = replies.withLock { replies in
      replies[id].map { ($0.expected ?? []).subtracting($0.instances) } ?? []
    }
    let numbers = missing.map(\.number).sorted().map(String.init).joined(separator: ", ")
    log.warning(
      "an instance did not confirm a change in time, the change is made now",
      metadata: ["instances": "\(numbers)"])
  }

  func recordConfirmation(of id: AnnouncementID, by instance: Instance) {
    replies.withLock { replies in
      replies[id]?.instances.insert(instance)
      replies[id]?.openIfComplete()
    }
  }
}
