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

/// Wakes a loop. Any number of tasks send it; one loop receives it. Signals that are sent before the loop has received
/// the last one count as one.
///
/// Parts that wake each other are given the same signal, so neither has to know the other.
package struct Signal: Sendable {
  /// Yields once the signal was sent. Ends after ``finish()``.
  package let arrivals: AsyncStream<Void>
  private let continuation: AsyncStream<Void>.Continuation

  package init() {
    (arrivals, continuation) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1))
  }

  package func send() { continuation.yield() }

  package func finish() { continuation.finish() }
}

/// Runs an operation, and calls `onCancel` immediately if the task is cancelled during the operation.
///
/// Like `withTaskCancellationHandler`, but the operation stays on the caller's actor. The standard library is compiled
/// without SE-0461, so its function would cost two changes of thread per call.
package func withCancellation<Value>(
  isolation: isolated (any Actor)? = #isolation, _ operation: () async -> Value,
  onCancel: @Sendable () -> Void
) async -> Value {
  await withTaskCancellationHandler {
    _ = isolation  // a closure that captures it stays on the actor
    return await operation()
  } onCancel: {
    onCancel()
  }
}

/// Passes one value to the one task that waits for it.
package final class OneShot<Value: Sendable>: Sendable {
  private enum State {
    case empty
    case awaited(CheckedContinuation<Value?, Never>)
    case fulfilled(Value)
    /// The value was returned, or the waiting task was cancelled or timed out.
    case finished
  }

  private let state = Mutex(State.empty)

  package init() {}

  /// Passes the value to the task that waits for it, now or later.
  /// - Returns: False if there already was a value, or if the waiting task was cancelled or timed out. The value is then
  ///   discarded.
  @discardableResult
  package func fulfil(_ value: Value) -> Bool {
    let (isTaken, waiter) = state.withLock { state -> (Bool, CheckedContinuation<Value?, Never>?) in
      switch state {
      case .empty:
        state = .fulfilled(value)
        return (true, nil)
      case .awaited(let waiter):
        state = .finished
        return (true, waiter)
      case .fulfilled, .finished: return (false, nil)
      }
    }
    waiter?.resume(returning: value)
    return isTaken
  }

  /// Waits for the value. Only one task may call it, once.
  /// - Returns: Nil if the task is cancelled first.
  package func value() async -> Value? {
    await withCancellation {
      await withCheckedContinuation { continuation in
        let answer = state.withLock { state -> Value?? in
          switch state {
          // Checked under the lock, so that a later cancellation finds the continuation.
          case .empty where !Task.isCancelled:
            state = .awaited(continuation)
            return nil
          case .fulfilled(let value):
            state = .finished
            return .some(value)
          case .empty, .awaited, .finished:
            state = .finished
            return .some(nil)
          }
        }
        if let answer { continuation.resume(returning: answer) }
      }
    } onCancel: {
      giveUp()
    }
  }

  /// Waits for the value. Returns nil if the deadline passes or the task is cancelled first.
  package func value(before deadline: ContinuousClock.Instant) async -> Value? {
    let alarm = Task {
      try? await Task.sleep(until: deadline, clock: .continuous)
      if !Task.isCancelled { giveUp() }
    }
    defer { alarm.cancel() }
    return await value()
  }

  /// Whether a value was passed, or the waiting task was cancelled or timed out.
  package var isFinished: Bool {
    state.withLock { state in
      switch state {
      case .empty, .awaited: false
      case .fulfilled, .finished: true
      }
    }
  }

  private func giveUp() {
    let waiter = state.withLock { state -> CheckedContinuation<Value?, Never>? in
      switch state {
      case .awaited(let waiter):
        state = .finished
        return waiter
      case .empty:
        state = .finished
        return nil
      case .fulfilled, .finished: return nil
      }
    }
    waiter?.resume(returning: nil)
  }
}

extension OneShot where Value == Void {
  /// Resumes the waiting task.
  @discardableResult
  package func fulfil() -> Bool { fulfil(()) }
}
