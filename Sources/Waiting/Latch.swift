internal import Synchronization

/// An event that happens once. Any number of tasks can wait for it.
package final class Latch: Sendable {
  private struct State {
    var isOpen = false
    var waiters: [UInt64: CheckedContinuation<Void, Never>] = [:]
    var count: UInt64 = 0
  }

  private let state = Mutex(State())

  /// A closed latch.
  package init() {}

  package var isOpen: Bool { state.withLock { $0.isOpen } }

  /// Opens the latch permanently and resumes all waiting tasks.
  package func open() {
    let waiters = state.withLock { state in
      state.isOpen = true
      defer { state.waiters = [:] }
      return Array(state.waiters.values)
    }
    for waiter in waiters { waiter.resume() }
  }

  /// Waits until the latch is open or the task is cancelled.
  package func wait() async {
    let token = state.withLock { state in
      state.count += 1
      return state.count
    }
    await withCancellation {
      await withCheckedContinuation { continuation in
        let isOver = state.withLock { state in
          if state.isOpen || Task.isCancelled { return true }
          state.waiters[token] = continuation
          return false
        }
        if isOver { continuation.resume() }
      }
    } onCancel: {
      state.withLock { $0.waiters.removeValue(forKey: token) }?.resume()
    }
  }

  /// Waits until the latch is open, the task is cancelled or the deadline passes.
  package func wait(until deadline: ContinuousClock.Instant) async {
    await withTaskGroup { group in
      group.addTask { await self.wait() }
      group.addTask { try? await Task.sleep(until: deadline, clock: .continuous) }
      await group.next()
      group.cancelAll()
    }
  }
}
