internal import DequeModule
internal import Synchronization

/// A semaphore whose permits are shared fairly by clients. The next free permit goes to the waiting client that holds the
/// fewest. Requests of one client are served first in, first out.
///
/// A client may hold three quarters of the permits while no other client waits, and half of them otherwise. The last
/// quarter is reserved for clients that hold no permit.
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

  private struct Waiter {
    let permit: OneShot<Permit>
    let number: UInt64
  }

  private struct State {
    var held: [Client: Int] = [:]
    var heldInAll = 0
    var queues: [Client: Deque<Waiter>] = [:]
    var count: UInt64 = 0

    mutating func acquire(_ client: Client) {
      held[client, default: 0] += 1
      heldInAll += 1
    }

    mutating func release(_ client: Client) {
      let left = held[client, default: 0] - 1
      held[client] = left > 0 ? left : nil
      heldInAll -= 1
    }

    /// Removes and returns the next waiter. It belongs to the client that holds the fewest permits; if several hold equally
    /// few, to the one that has waited longest.
    mutating func next(_ mayTake: (Client, State) -> Bool) -> (client: Client, waiter: Waiter)? {
      let first = queues.keys.filter { mayTake($0, self) }.min { a, b in
        (held[a] ?? 0, queues[a]?.first?.number ?? 0) < (
          held[b] ?? 0, queues[b]?.first?.number ?? 0
        )
      }
      guard let first, let waiter = queues[first]?.popFirst() else { return nil }
      if queues[first]?.isEmpty == true { queues[first] = nil }
      return (first, waiter)
    }
  }

  private let permits: Int
  private let state = Mutex(State())

  /// - Parameter permits: the total number of permits, at least 1.
  package init(_ permits: Int) { self.permits = max(1, permits) }

  /// Whether no permit is held and no task waits.
  package var isIdle: Bool { state.withLock { $0.heldInAll == 0 && $0.queues.isEmpty } }

  /// Waits for a permit. Returns nil if the task is cancelled first.
  package func acquire(for client: Client) async -> Permit? {
    let permit = OneShot<Permit>()
    let isGranted = state.withLock { state in
      guard state.queues[client] == nil, mayAcquire(client, state) else {
        state.count += 1
        state.queues[client, default: []].append(Waiter(permit: permit, number: state.count))
        return false
      }
      state.acquire(client)
      return true
    }
    if isGranted { return Permit(client, of: self) }
    if let permit = await permit.value() { return permit }
    grant { state in
      state.queues[client]?.removeAll { $0.permit === permit }
      if state.queues[client]?.isEmpty == true { state.queues[client] = nil }
    }
    return nil
  }

  private func mayAcquire(_ client: Client, _ state: State) -> Bool {
    guard state.heldInAll < permits else { return false }
    guard let held = state.held[client] else { return true }
    let othersWait = state.queues.contains { $0.key != client }
    return held < (othersWait ? permits - permits / 2 : permits - permits / 4)
  }

  private func release(_ client: Client) { grant { $0.release(client) } }

  private func grant(after change: (inout State) -> Void) {
    let granted = state.withLock { state in
      change(&state)
      var granted: [(client: Client, waiter: Waiter)] = []
      while let next = state.next(mayAcquire) {
        state.acquire(next.client)
        granted.append(next)
      }
      return granted
    }
    // If the waiter was cancelled meanwhile, its permit is deallocated, and so released, at once.
    for (client, waiter) in granted { waiter.permit.fulfil(Permit(client, of: self)) }
  }
}
