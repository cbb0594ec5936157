internal import Synchronization

/// One transfer and decode, for all the jobs that ask the same: its members. It stops when the last of them leaves.
final class Load: Sendable {
  typealias Instant = ContinuousClock.Instant

  /// A job's part in it.
  struct Member: Sendable {
    /// As it was taken.
    let job: Job
    let claim: Claim
    let limits: MemberLimits
    /// When its own timeout is over.
    var deadline: Instant
  }

  /// A member that ends before the others.
  struct Departure: Sendable {
    let member: Member
    let failure: JobFailure
  }

  private struct State {
    var members: [Claim: Member] = [:]
    var departures: [Departure] = []
    var header: ImageHeader?
    /// No job may join any more: its end is being written down.
    var isSealed = false
    var forgetsBytes = false
    var task: Task<Void, Never>?
    var isCancelled = false
    var pausedSince: Instant?
  }

  /// Whom it was begun for: what all members ask is read from here.
  let leader: Job
  /// What members have in common; nil: it is the leader's alone.
  let request: Fingerprint?
  /// The name under which it reserves its image.
  let holder: JobID
  let since: Timestamp
  let reporter: Reporter
  let lane: any ComputeLane
  /// Whether it goes on without members: it freshens the cache.
  let isBackground: Bool
  private let state = Mutex(State())

  init(
    for leader: Job, request: Fingerprint?, holder: JobID, since: Timestamp,
    lane: any ComputeLane, isBackground: Bool = false
  ) {
    self.leader = leader
    self.request = request
    self.holder = holder
    self.since = since
    self.lane = lane
    self.isBackground = isBackground
    reporter = Reporter()
  }

  /// What it does, so that it can be stopped. One that was stopped before that is stopped now.
  func run(as task: Task<Void, Never>) {
    let isCancelled = state.withLock { state in
      state.task = task
      return state.isCancelled
    }
    if isCancelled { task.cancel() }
  }

  /// - Returns: false when it is too late.
  func join(_ member: Member) -> Bool {
    state.withLock { state in
      guard !state.isSealed, !state.isCancelled else { return false }
      state.members[member.claim] = member
      Self.expel(&state, received: reporter.received)
      lane.move(to: Self.priority(state) ?? leader.priority)
      return true
    }
  }

  /// A member was cancelled, or is no longer ours.
  /// - Parameter forgetting: whether the bytes so far are not to be kept if it was the last.
  func leave(_ claim: Claim, forgetting: Bool) {
    change { state in
      guard state.members.removeValue(forKey: claim) != nil else { return }
      state.forgetsBytes = forgetting
    }
  }

  /// A member's job has another priority from now on.
  func prioritize(_ claim: Claim, _ priority: Priority) {
    change { state in
      guard let member = state.members[claim] else { return }
      var job = member.job
      _ = job.edit(priority: priority, tags: nil)
      state.members[claim] = Member(
        job: job, claim: claim, limits: member.limits, deadline: member.deadline)
    }
  }

  /// So many bytes are there or announced: those whose limit is less leave.
  func came(bytes: Int) { change { Self.expel(&$0, received: bytes) } }

  /// The image's header was read.
  func came(_ header: ImageHeader) {
    change { state in
      state.header = header
      Self.expel(&state, received: 0)
    }
  }

  /// Those whose time is over leave. While it waits for memory, time stands still.
  func passed(_ now: Instant) {
    change { state in
      guard state.pausedSince == nil else { return }
      for member in state.members.values where member.deadline <= now {
        let failure = FetchError.timeout(seconds: member.limits.timeout.inSeconds)
        Self.expel(member, .fetch(failure), from: &state)
      }
    }
  }

  func pause() { state.withLock { $0.pausedSince = .now } }

  func resume() {
    state.withLock { state in
      guard let since = state.pausedSince.take() else { return }
      let pause = since.duration(to: .now)
      for claim in state.members.keys { state.members[claim]?.deadline += pause }
    }
  }

  /// Members that have left since this was last asked, and still are to be told so.
  func takeDepartures() -> [Departure] {
    state.withLock { state in
      defer { state.departures = [] }
      return state.departures
    }
  }

  /// No job joins from now on; those that are in it are the caller's to end.
  func seal() -> [Member] {
    state.withLock { state in
      state.isSealed = true
      defer { state.members = [:] }
      return Array(state.members.values)
    }
  }

  /// Ends it, with whoever is in it.
  func cancel() { change { $0.isCancelled = true } }

  var isCancelled: Bool { state.withLock { $0.isCancelled } }
  var members: [Member] { state.withLock { Array($0.members.values) } }
  var forgetsBytes: Bool { state.withLock { $0.forgetsBytes } }

  /// Changes the members, and stops when none is left.
  private func change(_ body: (inout State) -> Void) {
    let task = state.withLock { state -> Task<Void, Never>? in
      body(&state)
      if let priority = Self.priority(state) { lane.move(to: priority) }
      if state.members.isEmpty, !isBackground, !state.isSealed { state.isCancelled = true }
      return state.isCancelled ? state.task : nil
    }
    task?.cancel()
  }

  private static func priority(_ state: State) -> Priority? {
    state.members.values.map(\.job.priority).max()
  }

  private static func expel(_ state: inout State, received: Int) {
    for member in state.members.values {
      let failure = member.limits.objection(bytes: received, header: state.header)
      if let failure { expel(member, failure, from: &state) }
    }
  }

  private static func expel(_ member: Member, _ failure: JobFailure, from state: inout State) {
    state.members[member.claim] = nil
    state.departures.append(Departure(member: member, failure: failure))
  }
}

/// What a job itself says of time and size: never wider than the configuration.
struct MemberLimits: Sendable {
  let timeout: Duration
  let maxBytes: Int
  let maxPixels: Int

  init(of job: Job, within configuration: JobEngine.Configuration) {
    let asked = job.submission
    timeout = min(asked.timeout ?? configuration.timeout, configuration.timeout)
    maxBytes = min(asked.maxBytes ?? configuration.maxBytes, configuration.maxBytes)
    let maxPixels = configuration.limits.maxPixels
    self.maxPixels = min(asked.maxPixels ?? maxPixels, maxPixels)
  }

  /// Why an image of that size is not for this job.
  func objection(bytes: Int, header: ImageHeader?) -> JobFailure? {
    if bytes > maxBytes { return .fetch(.tooLarge(limit: maxBytes)) }
    guard let header, header.width * header.height > maxPixels else { return nil }
    return .codec(
      .tooManyPixels(width: header.width, height: header.height, limit: maxPixels))
  }
}
