internal import Jobs
internal import Waiting

/// Decides which renditions are made next, and keeps track of the requests that wait for them. Pure rules: it renders nothing.
///
/// One decode makes all waiting renditions of an image that are read at the same scale. Requests that arrive during a
/// decode wait for its end and share the next one. Slots in the queue and rendering turns are shared among owners, so
/// that no owner blocks the others.
struct VariantQueue {
  typealias Outcome = Result<RenderedBytes, JobsError>
  typealias Instant = ContinuousClock.Instant

  /// A request.
  struct Waiter {
    let owner: Owner
    /// Read again at each turn, because it may change while the request waits.
    let priority: @Sendable () -> Priority
    /// Whether the result may be stored.
    let keeps: Bool
    let outcome = OneShot<Outcome>()
  }

  /// A rendition and the requests that wait for it.
  struct Work {
    let rendition: Rendition
    /// The owner of the first request. While the work is queued it uses one of this owner's slots, even if the
    /// first request is gone.
    let owner: Owner
    let lane: any TaskLane
    var waiters: [UInt64: Waiter]
    var keeps: Bool
    /// Nil while the work is queued.
    var task: Task<Void, Never>?
    /// When rendering began; nil before that and after its end.
    var since: Instant?
    /// The work whose decode makes this rendition as well; nil: it has a decode of its own.
    var leader: UInt64?
    /// The result, while it is being stored.
    var outcome: Outcome?

    var priority: Priority { waiters.values.map { $0.priority() }.max() ?? .veryLow }
  }

  /// The result of entering a request.
  enum Entry {
    /// The first request for this rendition: it is queued.
    case added
    /// It waits together with earlier requests.
    case joined
    /// The rendition has just been made.
    case finished(Outcome)
    /// The queue is full, in total or for this owner.
    case refused
  }

  let atOnce: Int
  let maxWaiting: Int
  private(set) var isClosed = false
  /// By number; lower numbers arrived first.
  private var works: [UInt64: Work] = [:]
  /// Work that further requests can join.
  private var open: [CacheEntry.ID: UInt64] = [:]
  private var count: UInt64 = 0
  /// Slots of queued work, by owner.
  private var slots = FairShare<Owner>()
  /// The numbers of queued work.
  private var queue = FairQueue<Owner, UInt64>()

  /// - Parameters:
  ///   - atOnce: renderings at the same time.
  ///   - maxWaiting: length of the queue.
  init(atOnce: Int, maxWaiting: Int) {
    self.atOnce = max(1, atOnce)
    self.maxWaiting = max(1, maxWaiting)
  }

  var waiting: Int { slots.held }
  /// Number of decodes that run.
  var rendering: Int { works.values.count { $0.since != nil && $0.leader == nil } }
  private var keeping: Int { works.values.count { $0.outcome != nil } }
  /// When the oldest running rendering began.
  var oldest: Instant? { works.values.compactMap(\.since).min() }

  /// Returns a number that identifies the next request.
  mutating func number() -> UInt64 {
    count += 1
    return count
  }

  /// Enters a request.
  mutating func enter(
    _ rendition: Rendition, _ me: UInt64, _ waiter: Waiter, at moment: Timestamp,
    lane: (Priority) -> any TaskLane
  ) -> Entry {
    if let number = open[rendition.id], let work = works[number] {
      if let outcome = work.outcome { return .finished(outcome) }
      change(number) { work in
        work.waiters[me] = waiter
        work.keeps = work.keeps || waiter.keeps
      }
      return .joined
    }
    guard slots.acquire(1, for: waiter.owner, within: ShareBounds(maxWaiting), at: moment) else {
      return .refused
    }
    queue.append(me, for: waiter.owner)
    works[me] = Work(
      rendition: rendition, owner: waiter.owner, lane: lane(waiter.priority()),
      waiters: [me: waiter], keeps: waiter.keeps)
    open[rendition.id] = me
    return .added
  }

  /// Removes a request whose client is gone.
  /// - Returns: the task to stop, if no request waits for it any more; whether the work had not begun.
  mutating func removeRequest(
    _ me: UInt64, _ id: CacheEntry.ID
  ) -> (task: Task<Void, Never>?, isForgotten: Bool) {
    guard let number = open[id], works[number]?.waiters[me] != nil else { return (nil, false) }
    change(number) { $0.waiters[me] = nil }
    guard let work = works[number], work.waiters.isEmpty else { return (nil, false) }
    // New requests must not join work that is being stopped.
    open[id] = nil
    if work.task == nil {
      works[number] = nil
      removeQueued(number, of: work.owner)
    }
    return (isAwaited(work.leader ?? number) ? nil : work.task, work.task == nil)
  }

  /// Whether any request waits for a rendition of this decode.
  private func isAwaited(_ leader: UInt64) -> Bool {
    works.contains { ($0 == leader || $1.leader == leader) && !$1.waiters.isEmpty }
  }

  /// Changes the requests of a work, and its priority with them.
  private mutating func change(_ number: UInt64, _ body: (inout Work) -> Void) {
    guard var work = works.removeValue(forKey: number) else { return }
    body(&work)
    if !work.waiters.isEmpty { work.lane.move(to: work.priority) }
    works[number] = work
  }

  /// Removes work from the queue and releases its slot.
  private mutating func removeQueued(_ number: UInt64, of owner: Owner) {
    queue.removeAll(of: owner) { $0 == number }
    slots.release(1, of: owner)
  }

  /// Begins queued work while there is room. Renditions that are being stored count too, so that they don't pile up if
  /// storing is slower than rendering.
  mutating func startNext(_ begin: (UInt64, Work) -> Task<Void, Never>) {
    while rendering < atOnce, keeping < atOnce, let number = popNext(), let work = works[number] {
      slots.release(1, of: work.owner)
      works[number]?.since = .now
      works[number]?.task = begin(number, work)
    }
  }

  /// Removes the next work from the queue whose image is not being decoded.
  private mutating func popNext() -> UInt64? {
    guard !queue.isEmpty else { return nil }
    let works = works
    let decodes = Set(works.values.lazy.filter { $0.since != nil }.compactMap(\.rendition.decode))
    return queue.popFirst(by: { works[$0]?.priority ?? .veryLow }) {
      !(works[$0]?.rendition.decode.map(decodes.contains) ?? false)
    }
  }

  private static func isLater(_ a: (key: UInt64, value: Work), _ b: (key: UInt64, value: Work))
    -> Bool
  {
    let (first, second) = (a.value.priority, b.value.priority)
    return first == second ? a.key > b.key : first < second
  }

  /// Returns what the decode that is about to begin makes: the given rendition and other queued renditions of the same
  /// image, the most urgent first.
  /// - Parameter fits: whether these renditions can be made by one decode.
  mutating func coalesce(
    _ number: UInt64, atMost most: Int, _ fits: ([Rendition]) -> Bool
  ) -> [(number: UInt64, rendition: Rendition)] {
    guard let leader = works[number] else { return [] }
    var gathered = [(number: number, rendition: leader.rendition)]
    // Work without waiting requests is being stopped, so nothing is added to it.
    guard let decode = leader.rendition.decode, !leader.waiters.isEmpty else { return gathered }
    let others = works.filter { $0.value.task == nil && $0.value.rendition.decode == decode }
    for (other, work) in others.sorted(by: { Self.isLater($1, $0) }) where gathered.count < most {
      guard fits(gathered.map(\.rendition) + [work.rendition]) else { break }
      gathered.append((other, work.rendition))
      works[other]?.leader = number
      works[other]?.since = leader.since
      works[other]?.task = leader.task
      removeQueued(other, of: work.owner)
    }
    return gathered
  }

  /// Whether the result may be stored.
  func mayStore(_ number: UInt64) -> Bool { works[number]?.keeps ?? false }

  /// Records the result of a rendition.
  /// - Parameter isBeingKept: whether the result is being stored. Until ``remove(_:)``, further requests get it from here.
  /// - Returns: the requests that wait for it.
  mutating func finish(
    _ number: UInt64, _ outcome: Outcome, isBeingKept: Bool
  ) -> [Waiter] {
    guard var work = works.removeValue(forKey: number) else { return [] }
    let waiters = work.waiters.values
    (work.waiters, work.since, work.leader, work.outcome) = ([:], nil, nil, outcome)
    works[number] = work
    if !isBeingKept { remove(number) }
    return Array(waiters)
  }

  /// Removes work whose result is stored, or won't be.
  mutating func remove(_ number: UInt64) {
    guard let work = works.removeValue(forKey: number) else { return }
    if open[work.rendition.id] == number { open[work.rendition.id] = nil }
  }

  /// Stops the queue for good.
  /// - Returns: the waiting requests and the running tasks.
  mutating func close() -> (waiters: [Waiter], tasks: [Task<Void, Never>]) {
    isClosed = true
    let waiters = works.values.flatMap(\.waiters.values)
    works = works.filter { $0.value.task != nil }
    (slots, queue) = (FairShare(), FairQueue())
    for number in works.keys { works[number]?.waiters = [:] }
    open = [:]
    return (waiters, works.values.compactMap(\.task))
  }
}
