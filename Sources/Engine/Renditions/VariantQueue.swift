internal import Jobs
internal import Waiting

/// Which renditions are asked for, who waits for each, and which are next: the rules, without computing anything.
///
/// One decode makes all renditions of a picture that wait when it begins and are read at one scale; those asked for later
/// wait for its end, and share the next one. Places and turns are shared among owners, so that none of them has all others wait.
struct VariantQueue {
  typealias Outcome = Result<RenderedBytes, JobsError>
  typealias Instant = ContinuousClock.Instant

  /// A request.
  struct Waiter {
    let owner: Owner
    /// Asked whenever a turn comes: it may change meanwhile.
    let priority: @Sendable () -> Priority
    /// Whether what comes out may be kept.
    let keeps: Bool
    let outcome = OneShot<Outcome>()
  }

  /// One rendition and those who wait for it.
  struct Work {
    let rendition: Rendition
    /// Who asked first: while it waits for its turn it takes one of that owner's places, whoever joins or leaves.
    let owner: Owner
    let lane: any TaskLane
    var waiters: [UInt64: Waiter]
    var keeps: Bool
    /// Nil while it waits for its turn.
    var task: Task<Void, Never>?
    /// When its turn came; nil before, and once it is rendered.
    var since: Instant?
    /// The one whose turn it came with, by the same decode; nil: its own turn.
    var leader: UInt64?
    /// Once it is rendered, and being kept.
    var outcome: Outcome?

    var priority: Priority { waiters.values.map { $0.priority() }.max() ?? .veryLow }
  }

  /// What becomes of a request.
  enum Entry {
    /// Nobody asked for the same: it waits.
    case added
    /// It waits with others.
    case joined
    /// The same has just been rendered.
    case told(Outcome)
    /// As many wait as may, of all or of its owner's.
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
  /// Of what waits for its turn.
  private var places = SharedCapacity<Owner>()
  /// When owners of what waits had their last turns, or came: by number.
  private var lastTurns: [Owner: UInt64] = [:]
  /// Whether the next turn is the most urgent one's, or else the owner's who has waited longest for one.
  private var isForUrgent = true

  /// - Parameters:
  ///   - atOnce: renderings under way.
  ///   - maxWaiting: renderings that wait for their turn.
  init(atOnce: Int, maxWaiting: Int) {
    self.atOnce = max(1, atOnce)
    self.maxWaiting = max(1, maxWaiting)
  }

  var waiting: Int { places.held }
  /// Decodes under way.
  var rendering: Int { works.values.count { $0.since != nil && $0.leader == nil } }
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
    _ rendition: Rendition, _ me: UInt64, _ waiter: Waiter, at moment: Timestamp,
    lane: (Priority) -> any TaskLane
  ) -> Entry {
    if let number = open[rendition.id], let work = works[number] {
      if let outcome = work.outcome { return .told(outcome) }
      change(number) { work in
        work.waiters[me] = waiter
        work.keeps = work.keeps || waiter.keeps
      }
      return .joined
    }
    guard places.take(1, for: waiter.owner, within: maxWaiting, at: moment) else { return .refused }
    // Whoever comes anew is behind those who wait.
    lastTurns[waiter.owner] = lastTurns[waiter.owner] ?? me
    works[me] = Work(
      rendition: rendition, owner: waiter.owner, lane: lane(waiter.priority()),
      waiters: [me: waiter], keeps: waiter.keeps)
    open[rendition.id] = me
    return .added
  }

  /// A request's client has left.
  /// - Returns: what to stop, as nobody waits for it any more; whether that was never begun.
  mutating func leave(
    _ me: UInt64, _ id: CacheEntry.ID
  ) -> (task: Task<Void, Never>?, isForgotten: Bool) {
    guard let number = open[id], works[number]?.waiters[me] != nil else { return (nil, false) }
    change(number) { $0.waiters[me] = nil }
    guard let work = works[number], work.waiters.isEmpty else { return (nil, false) }
    // Whoever asks from now on must not be given what is being stopped.
    open[id] = nil
    if work.task == nil {
      works[number] = nil
      release(work.owner)
    }
    return (isAwaited(work.leader ?? number) ? nil : work.task, work.task == nil)
  }

  /// Whether anybody waits for what a turn makes.
  private func isAwaited(_ leader: UInt64) -> Bool {
    works.contains { ($0 == leader || $1.leader == leader) && !$1.waiters.isEmpty }
  }

  /// Changes who waits, and with that how soon the work's turn is.
  private mutating func change(_ number: UInt64, _ body: (inout Work) -> Void) {
    guard var work = works.removeValue(forKey: number) else { return }
    body(&work)
    if !work.waiters.isEmpty { work.lane.move(to: work.priority) }
    works[number] = work
  }

  /// Gives back the place of what waits no more.
  private mutating func release(_ owner: Owner) {
    places.release(1, of: owner)
    if places.share(of: owner) == 0 { lastTurns[owner] = nil }
  }

  /// Begins what is next, if there is room: what can't be kept as fast as it is rendered must not pile up.
  mutating func startNext(_ begin: (UInt64, Work) -> Task<Void, Never>) {
    while rendering < atOnce, keeping < atOnce, let (number, work) = next {
      works[number]?.since = .now
      works[number]?.task = begin(number, work)
      lastTurns[work.owner] = self.number()
      release(work.owner)
      isForUrgent.toggle()
    }
  }

  /// Every other turn looks at owners before priorities, so that nobody's priorities keep another one waiting.
  private var next: (UInt64, Work)? {
    let decodes = Set(works.values.lazy.filter { $0.since != nil }.compactMap(\.rendition.decode))
    return works.filter { _, work in
      work.task == nil && !(work.rendition.decode.map(decodes.contains) ?? false)
    }.max { a, b in
      let (first, second) = (a.value.priority, b.value.priority)
      let (mine, other) = (lastTurns[a.value.owner] ?? 0, lastTurns[b.value.owner] ?? 0)
      return isForUrgent
        ? (second, mine, a.key) > (first, other, b.key)
        : (mine, second, a.key) > (other, first, b.key)
    }
  }

  private static func isLater(_ a: (key: UInt64, value: Work), _ b: (key: UInt64, value: Work))
    -> Bool
  {
    let (first, second) = (a.value.priority, b.value.priority)
    return first == second ? a.key > b.key : first < second
  }

  /// What the decode that is about to begin makes: the rendition whose turn it is, and those of the same picture that
  /// wait, the most urgent first.
  /// - Parameter fits: whether so many can be made at once.
  mutating func gather(
    _ number: UInt64, atMost most: Int, _ fits: ([Rendition]) -> Bool
  ) -> [(number: UInt64, rendition: Rendition)] {
    guard let leader = works[number] else { return [] }
    var gathered = [(number: number, rendition: leader.rendition)]
    // One that nobody waits for is being stopped: the others have their own turn.
    guard let decode = leader.rendition.decode, !leader.waiters.isEmpty else { return gathered }
    let others = works.filter { $0.value.task == nil && $0.value.rendition.decode == decode }
    for (other, work) in others.sorted(by: { Self.isLater($1, $0) }) where gathered.count < most {
      guard fits(gathered.map(\.rendition) + [work.rendition]) else { break }
      gathered.append((other, work.rendition))
      works[other]?.leader = number
      works[other]?.since = leader.since
      works[other]?.task = leader.task
      release(work.owner)
    }
    return gathered
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
    (work.waiters, work.since, work.leader, work.outcome) = ([:], nil, nil, outcome)
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
    places = SharedCapacity()
    lastTurns = [:]
    for number in works.keys { works[number]?.waiters = [:] }
    open = [:]
    return (waiters, works.values.compactMap(\.task))
  }
}
