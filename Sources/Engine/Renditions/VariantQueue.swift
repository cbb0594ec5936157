internal import Jobs

/// Which renditions are asked for, who waits for each, and which is next: the rules, without computing anything.
struct VariantQueue {
  typealias Outcome = Result<StoredBytes, JobsError>
  typealias Instant = ContinuousClock.Instant

  /// A request.
  struct Waiter {
    let priority: Priority
    /// Whether what comes out may be kept.
    let keeps: Bool
    let continuation: CheckedContinuation<Outcome, Never>
  }

  /// One rendition and those who wait for it.
  struct Work {
    let rendition: Rendition
    let lane: any TaskLane
    var waiters: [UInt64: Waiter]
    var keeps: Bool
    /// Nil while it waits for its turn.
    var task: Task<Void, Never>?
    /// When its turn came; nil before, and once it is rendered.
    var since: Instant?
    /// Once it is rendered, and being kept.
    var outcome: Outcome?

    var priority: Priority { waiters.values.map(\.priority).max() ?? .veryLow }
  }

  /// What becomes of a request.
  enum Entry {
    /// Nobody asked for the same: it waits.
    case added
    /// It waits with others.
    case joined
    /// The same has just been rendered.
    case told(Outcome)
    /// As many wait as may.
    case refused
  }

  let atOnce: Int
  let maxWaiting: Int
  private(set) var isClosed = false
  /// By number: the lower one came first.
  private var works: [UInt64: Work] = [:]
  /// Those that may be joined.
  private var open: [CacheEntry.ID: UInt64] = [:]
  private var count: UInt64 = 0

  /// - Parameters:
  ///   - atOnce: renderings under way.
  ///   - maxWaiting: renderings that wait for their turn.
  init(atOnce: Int, maxWaiting: Int) {
    self.atOnce = max(1, atOnce)
    self.maxWaiting = max(1, maxWaiting)
  }

  var waiting: Int { works.values.count { $0.task == nil } }
  var rendering: Int { works.values.count { $0.since != nil } }
  private var keeping: Int { works.values.count { $0.outcome != nil } }
  /// When the turn of the oldest one under way came.
  var oldest: Instant? { works.values.compactMap(\.since).min() }

  /// A name for the next request.
  mutating func number() -> UInt64 {
    count += 1
    return count
  }

  /// Takes in a request.
  mutating func enter(
    _ rendition: Rendition, _ me: UInt64, _ waiter: Waiter, lane: (Priority) -> any TaskLane
  ) -> Entry {
    if let number = open[rendition.id], let work = works[number] {
      if let outcome = work.outcome { return .told(outcome) }
      change(number) { work in
        work.waiters[me] = waiter
        work.keeps = work.keeps || waiter.keeps
      }
      return .joined
    }
    guard waiting < maxWaiting else { return .refused }
    works[me] = Work(
      rendition: rendition, lane: lane(waiter.priority), waiters: [me: waiter],
      keeps: waiter.keeps)
    open[rendition.id] = me
    return .added
  }

  /// A request's client has left.
  /// - Returns: the request, nil when it was answered before; what to stop, as nobody waits for it any more; whether
  ///   that was never begun.
  mutating func leave(
    _ me: UInt64, _ id: CacheEntry.ID
  ) -> (waiter: Waiter?, task: Task<Void, Never>?, isForgotten: Bool) {
    guard let number = open[id], let waiter = works[number]?.waiters[me] else {
      return (nil, nil, false)
    }
    change(number) { $0.waiters[me] = nil }
    guard let work = works[number], work.waiters.isEmpty else { return (waiter, nil, false) }
    // Whoever asks from now on must not be given what is being stopped.
    open[id] = nil
    if work.task == nil { works[number] = nil }
    return (waiter, work.task, work.task == nil)
  }

  /// Changes who waits, and with that how soon the work's turn is.
  private mutating func change(_ number: UInt64, _ body: (inout Work) -> Void) {
    guard var work = works.removeValue(forKey: number) else { return }
    body(&work)
    if !work.waiters.isEmpty { work.lane.move(to: work.priority) }
    works[number] = work
  }

  /// Begins what is next, if there is room: what can't be kept as fast as it is rendered must not pile up.
  mutating func startNext(_ begin: (UInt64, Work) -> Task<Void, Never>) {
    while rendering < atOnce, keeping < atOnce, let (number, work) = next {
      works[number]?.since = .now
      works[number]?.task = begin(number, work)
    }
  }

  private var next: (UInt64, Work)? {
    works.filter { $0.value.task == nil }.max { a, b in
      let (first, second) = (a.value.priority, b.value.priority)
      return first == second ? a.key > b.key : first < second
    }
  }

  /// Whether what comes out may be kept.
  func keeps(_ number: UInt64) -> Bool { works[number]?.keeps ?? false }

  /// The rendition is there, or failed.
  /// - Parameter isBeingKept: whether the outcome stays for requests that come until ``end(_:)``.
  /// - Returns: who waits for it.
  mutating func finish(
    _ number: UInt64, _ outcome: Outcome, isBeingKept: Bool
  ) -> [Waiter] {
    guard var work = works.removeValue(forKey: number) else { return [] }
    let waiters = work.waiters.values
    (work.waiters, work.since, work.outcome) = ([:], nil, outcome)
    works[number] = work
    if !isBeingKept { end(number) }
    return Array(waiters)
  }

  /// The rendition is kept, or won't be.
  mutating func end(_ number: UInt64) {
    guard let work = works.removeValue(forKey: number) else { return }
    if open[work.rendition.id] == number { open[work.rendition.id] = nil }
  }

  /// Lets nothing begin any more.
  /// - Returns: who waits, and what is under way.
  mutating func close() -> (waiters: [Waiter], tasks: [Task<Void, Never>]) {
    isClosed = true
    let waiters = works.values.flatMap(\.waiters.values)
    works = works.filter { $0.value.task != nil }
    for number in works.keys { works[number]?.waiters = [:] }
    open = [:]
    return (waiters, works.values.compactMap(\.task))
  }
}
