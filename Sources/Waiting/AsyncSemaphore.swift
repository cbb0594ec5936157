internal import DequeModule
package import Jobs
internal import Synchronization

// Waiting: tasks that wait for permits, values or events.
//
// `AsyncSemaphore` and `FairSemaphore` hand out permits, `OneShot` passes one value to one task, `Latch` opens once for
// many tasks, `withCancellation` handles cancellation without a change of thread. State is behind locks that are held
// briefly, so any thread may call them. Suspended tasks resume on their own executor.

/// A semaphore for tasks: it limits how many operations run, or resources are in use, at the same time.
///
/// Tasks that ask for more permits than are free wait in a queue, first in, first out.
package final class AsyncSemaphore: Sendable {
  /// One or more permits. They are released when the object is deallocated.
  package final class Permit: Sendable {
    private let semaphore: AsyncSemaphore
    private let count: Int

    fileprivate init(_ count: Int, of semaphore: AsyncSemaphore) {
      self.semaphore = semaphore
      self.count = count
    }

    deinit { semaphore.release(count) }
  }

  private struct Waiter {
    let count: Int
    let permit: OneShot<Permit>
  }

  private struct State {
    var free: Int
    var waiters: Deque<Waiter> = []
  }

  private let total: Int
  private let state: Mutex<State>

  /// - Parameter permits: the total number of permits.
  package init(_ permits: Int) {
    total = max(0, permits)
    state = Mutex(State(free: total))
  }

  /// The number of waiting tasks.
  package var waiting: Int { state.withLock { $0.waiters.count } }

  /// Waits for permits.
  ///
  /// - Parameter count: the number of permits, limited to the total.
  /// - Returns: Nil if the task is cancelled first.
  package func acquire(_ count: Int = 1) async -> Permit? {
    let count = min(max(0, count), total)
    let permit = OneShot<Permit>()
    let isGranted = state.withLock { state in
      guard state.waiters.isEmpty, state.free >= count else {
        state.waiters.append(Waiter(count: count, permit: permit))
        return false
      }
      state.free -= count
      return true
    }
    if isGranted { return Permit(count, of: self) }
    if let permit = await permit.value() { return permit }
    removeWaiter(permit)
    return nil
  }

  /// Acquires permits without waiting. Returns nil if tasks are waiting, or if fewer than `rest` permits would stay free.
  package func acquire(_ count: Int, leaving rest: Int) -> Permit? {
    let isGranted = state.withLock { state in
      guard state.waiters.isEmpty, state.free - count >= rest else { return false }
      state.free -= count
      return true
    }
    return isGranted ? Permit(count, of: self) : nil
  }

  /// Acquires permits without waiting, even if they are not free. Other tasks then wait until the deficit is released.
  package func acquireImmediately(_ count: Int) -> Permit {
    let count = max(0, count)
    state.withLock { $0.free -= count }
    return Permit(count, of: self)
  }

  /// Removes a cancelled waiter. The waiters behind it may need fewer permits, and may proceed now.
  private func removeWaiter(_ turn: OneShot<Permit>) {
    grant { state in state.waiters.removeAll { $0.permit === turn } }
  }

  private func release(_ count: Int) { grant { $0.free += count } }

  private func grant(after change: (inout State) -> Void) {
    let granted = state.withLock { state in
      change(&state)
      var granted: [Waiter] = []
      while let first = state.waiters.first, first.count <= state.free {
        state.free -= first.count
        granted.append(state.waiters.removeFirst())
      }
      return granted
    }
    // If the waiter was cancelled meanwhile, its permit is deallocated, and so released, at once.
    for waiter in granted { waiter.permit.fulfil(Permit(waiter.count, of: self)) }
  }
}

/// A semaphore whose permits are shared fairly by clients (``FairShare``). Waiting clients are served round robin, and the
/// requests of one client first in, first out (``FairQueue``).
package final class FairSemaphore<Client: Hashable & Sendable>: Sendable {
  /// One permit. It is released when the object is deallocated.
  package final class Permit: Sendable {
    private let semaphore: FairSemaphore
    private let client: Client

    fileprivate init(_ client: Client, of semaphore: FairSemaphore) {
      (self.client, self.semaphore) = (client, semaphore)
    }

    deinit { semaphore.release(client) }
  }

  private typealias Waiter = OneShot<Permit>

  private struct State {
    var held = FairShare<Client>()
    var waiters = FairQueue<Client, Waiter>()

    func mayAcquire(_ client: Client, _ bounds: ShareBounds, at moment: Timestamp) -> Bool {
      held.available(for: client, within: bounds, at: moment) > 0
    }
  }

  private let bounds: ShareBounds
  private let state = Mutex(State())

  /// - Parameter bounds: The number of permits, at least 1, and how they are shared.
  package init(_ bounds: ShareBounds) {
    var bounds = bounds
    bounds.all = max(1, bounds.all)
    self.bounds = bounds
  }

  /// Whether no permit is held and no task waits.
  package var isIdle: Bool { state.withLock { $0.held.held == 0 && $0.waiters.isEmpty } }

  /// The number of waiting tasks.
  package var waiting: Int { state.withLock { $0.waiters.count } }

  /// Waits for a permit. Returns nil if the task is cancelled first.
  package func acquire(for client: Client) async -> Permit? {
    let moment = Timestamp.monotonic
    let waiter = state.withLock { state -> Waiter? in
      guard state.waiters.contains(client) || !state.mayAcquire(client, bounds, at: moment) else {
        state.held.acquireUnchecked(1, for: client)
        return nil
      }
      let waiter = Waiter()
      state.waiters.append(waiter, for: client)
      return waiter
    }
    guard let waiter else { return Permit(client, of: self) }
    if let permit = await waiter.value() { return permit }
    grant { state, _ in state.waiters.removeAll(of: client) { $0 === waiter } }
    return nil
  }

  /// Runs `body` with a permit.
  /// - Returns: What `body` returns. Nil if the task is cancelled before it gets a permit.
  package func withPermit<Value>(
    for client: Client, _ body: () async -> Value?
  ) async -> Value? {
    guard let permit = await acquire(for: client) else { return nil }
    defer { withExtendedLifetime(permit) {} }
    return await body()
  }

  private func release(_ client: Client) { grant { $0.held.release(1, of: client, at: $1) } }

  private func grant(after change: (inout State, Timestamp) -> Void) {
    let moment = Timestamp.monotonic
    let granted = state.withLock { state in
      change(&state, moment)
      // Waiting clients need permits, however long they have waited.
      for client in state.waiters.clients.prefix(2) {
        state.held.recordDemand(of: client, at: moment)
      }
      var granted: [(client: Client, waiter: Waiter)] = []
      while state.held.held < bounds.all,
        let client = state.waiters.next(where: { state.mayAcquire($0, bounds, at: moment) }),
        let waiter = state.waiters.popFirst(of: client)
      {
        state.held.acquireUnchecked(1, for: client)
        granted.append((client, waiter))
      }
      return granted
    }
    // If the waiter was cancelled meanwhile, its permit is deallocated, and so released, at once.
    for (client, waiter) in granted { waiter.fulfil(Permit(client, of: self)) }
  }
}

extension Timestamp {
  private static let start = ContinuousClock.now

  /// The time since the process first asked for it, for comparison with other values of this property. It never
  /// goes back, unlike the clock.
  package static var monotonic: Timestamp {
    Timestamp(milliseconds: start.duration(to: .now).inMilliseconds)
  }
}
