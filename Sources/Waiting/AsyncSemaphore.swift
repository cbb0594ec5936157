internal import DequeModule
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
