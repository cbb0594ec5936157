package import Jobs
internal import Synchronization

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
