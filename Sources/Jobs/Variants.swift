internal import Synchronization

/// Has variants rendered for requests: equal ones once for all who ask, so many at a time as there are threads, the
/// others in the order of their priority. A rendering that nobody waits for any more is stopped.
final class Variants: Sendable {
  typealias Outcome = Result<StoredBytes, JobsError>
  typealias Instant = ContinuousClock.Instant

  private struct Waiter {
    let priority: Priority
    /// Whether what comes out may be kept.
    let keeps: Bool
    let continuation: CheckedContinuation<Outcome, Never>
  }

  /// One rendition and those who wait for it.
  private struct Work {
    let rendition: Rendition
    let lane: any ComputeLane
    var keeps = false
    var waiters: [UInt64: Waiter] = [:]
    /// Nil while it waits for its turn.
    var task: Task<Void, Never>?
    /// When its turn came; nil before, and once it is rendered.
    var since: Instant?
    /// Once it is rendered, and being kept.
    var outcome: Outcome?

    var priority: Priority { waiters.values.map(\.priority).max() ?? .veryLow }
  }

  private struct State {
    /// By number: the lower one came first.
    var works: [UInt64: Work] = [:]
    /// Those that may be joined.
    var open: [CacheEntry.ID: UInt64] = [:]
    var rendering = 0
    var count: UInt64 = 0
    var isClosed = false

    mutating func number() -> UInt64 {
      count += 1
      return count
    }
  }

  let rendering: VariantRendering
  private let shelf: VariantShelf
  private let threads: any ComputeThreads
  private let metrics: JobMetrics
  private let atOnce: Int
  private let maxWaiting: Int
  private let state = Mutex(State())

  /// - Parameters:
  ///   - atOnce: renderings under way.
  ///   - maxWaiting: renderings that wait for their turn.
  init(
    _ rendering: VariantRendering, shelf: VariantShelf, threads: any ComputeThreads,
    metrics: JobMetrics, atOnce: Int, maxWaiting: Int
  ) {
    self.rendering = rendering
    self.shelf = shelf
    self.threads = threads
    self.metrics = metrics
    self.atOnce = max(1, atOnce)
    self.maxWaiting = max(1, maxWaiting)
  }

  /// The rendition's bytes: kept ones, or rendered now.
  ///
  /// - Throws: `.renderingsFull`, `.imageGone`, `.unrenderable`; `.draining` once closed; `.abandoned` when the task
  ///   was cancelled.
  ///
  /// - Parameter keeping: whether the cache may be used. What others ask for at the same time is kept if they may.
  func bytes(
    of rendition: Rendition, at priority: Priority, keeping: Bool
  ) async throws(JobsError) -> StoredBytes {
    if keeping, let kept = await shelf.bytes(of: rendition) {
      metrics.variant(rendition.variant.format, .hit)
      return kept
    }
    return try await wait(for: rendition, at: priority, keeping).get()
  }

  /// Renderings under way and such that wait, and how long the oldest one has taken so far.
  var load: (rendering: Int, waiting: Int, oldest: Duration) {
    state.withLock { state in
      let oldest = state.works.values.compactMap(\.since).min()
      return (
        state.rendering, state.works.values.count { $0.task == nil },
        oldest.map { $0.duration(to: .now) } ?? .zero
      )
    }
  }

  /// Renders nothing any more; returns once what was under way has ended.
  func close() async {
    let (waiters, tasks) = state.withLock { state in
      state.isClosed = true
      let waiters = state.works.values.flatMap(\.waiters.values)
      for number in state.works.keys { state.works[number]?.waiters = [:] }
      let tasks = state.works.values.compactMap(\.task)
      state.works = state.works.filter { $0.value.task != nil }
      state.open = [:]
      return (waiters, tasks)
    }
    for waiter in waiters { waiter.continuation.resume(returning: .failure(.draining)) }
    for task in tasks { task.cancel() }
    for task in tasks { await task.value }
  }
}

/// Who waits for what.
extension Variants {
  private func wait(
    for rendition: Rendition, at priority: Priority, _ keeps: Bool
  ) async -> Outcome {
    let (me, id) = (state.withLock { $0.number() }, rendition.id)
    return await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        let waiter = Waiter(priority: priority, keeps: keeps, continuation: continuation)
        let answer = state.withLock { enter(rendition, id, waiter, me, &$0) }
        if let answer { continuation.resume(returning: answer) }
      }
    } onCancel: {
      leave(me, id)
    }
  }

  /// - Returns: nil when the waiter will be told later.
  private func enter(
    _ rendition: Rendition, _ id: CacheEntry.ID, _ waiter: Waiter, _ me: UInt64,
    _ state: inout State
  ) -> Outcome? {
    if Task.isCancelled { return .failure(.abandoned) }
    if state.isClosed { return .failure(.draining) }
    if let number = state.open[id] {
      metrics.variant(rendition.variant.format, .joined)
      if let outcome = state.works[number]?.outcome { return outcome }
      change(number, &state) { work in
        work.waiters[me] = waiter
        work.keeps = work.keeps || waiter.keeps
      }
      return nil
    }
    guard state.works.values.count(where: { $0.task == nil }) < maxWaiting else {
      metrics.variant(rendition.variant.format, .refused)
      return .failure(.renderingsFull)
    }
    let lane = threads.lane(at: waiter.priority)
    state.works[me] = Work(
      rendition: rendition, lane: lane, keeps: waiter.keeps, waiters: [me: waiter])
    state.open[id] = me
    startNext(&state)
    return nil
  }

  private func leave(_ me: UInt64, _ id: CacheEntry.ID) {
    let (waiter, task) = state.withLock { state -> (Waiter?, Task<Void, Never>?) in
      guard let number = state.open[id], let waiter = state.works[number]?.waiters[me] else {
        return (nil, nil)
      }
      change(number, &state) { $0.waiters[me] = nil }
      guard state.works[number]?.waiters.isEmpty == true else { return (waiter, nil) }
      // Whoever asks from now on must not be given what is being stopped.
      state.open[id] = nil
      guard let task = state.works[number]?.task else {
        if let work = state.works.removeValue(forKey: number) {
          metrics.variant(work.rendition.variant.format, .abandoned)
        }
        return (waiter, nil)
      }
      return (waiter, task)
    }
    task?.cancel()
    waiter?.continuation.resume(returning: .failure(.abandoned))
  }

  /// Changes who waits, and with that how soon the work's turn is.
  private func change(_ number: UInt64, _ state: inout State, _ body: (inout Work) -> Void) {
    guard var work = state.works.removeValue(forKey: number) else { return }
    body(&work)
    if !work.waiters.isEmpty { work.lane.move(to: work.priority) }
    state.works[number] = work
  }
}

/// The renderings.
extension Variants {
  private func startNext(_ state: inout State) {
    while state.rendering < atOnce, let number = Self.next(state), let work = state.works[number] {
      state.rendering += 1
      state.works[number]?.since = .now
      state.works[number]?.task = Task(executorPreference: work.lane) {
        await self.carryOut(number, work.rendition)
      }
    }
  }

  private static func next(_ state: State) -> UInt64? {
    state.works.filter { $0.value.task == nil }.max { a, b in
      let (first, second) = (a.value.priority, b.value.priority)
      return first == second ? a.key > b.key : first < second
    }?.key
  }

  private func carryOut(_ number: UInt64, _ rendition: Rendition) async {
    // An equal one may have ended since this one's first look.
    if keeps(number), let kept = await shelf.bytes(of: rendition) {
      metrics.variant(rendition.variant.format, .hit)
      finish(number, .success(kept))
    } else {
      await render(number, rendition)
    }
    state.withLock { state in
      state.works[number] = nil
      if state.open[rendition.id] == number { state.open[rendition.id] = nil }
    }
  }

  private func keeps(_ number: UInt64) -> Bool {
    state.withLock { $0.works[number]?.keeps ?? false }
  }

  private func render(_ number: UInt64, _ rendition: Rendition) async {
    let start = Instant.now
    let format = rendition.variant.format
    do throws(JobsError) {
      let bytes = try await rendering.bytes(of: rendition)
      metrics.rendered(format, in: start.duration(to: .now))
      finish(number, .success(StoredBytes(bytes)))
      if keeps(number) { await shelf.keep(bytes, of: rendition) }
    } catch {
      metrics.variant(format, error == .abandoned ? .abandoned : .failed)
      finish(number, .failure(error))
    }
  }

  /// Tells all who wait; who comes while it is being kept is told the same.
  private func finish(_ number: UInt64, _ outcome: Outcome) {
    let waiters = state.withLock { state in
      state.rendering -= 1
      defer { startNext(&state) }
      state.works[number]?.since = nil
      state.works[number]?.outcome = outcome
      return state.works[number]?.waiters.removeAll() ?? [:]
    }
    for waiter in waiters.values { waiter.continuation.resume(returning: outcome) }
  }
}

extension Dictionary {
  /// Empties it.
  /// - Returns: what was in it.
  fileprivate mutating func removeAll() -> Self {
    defer { self = [:] }
    return self
  }
}
