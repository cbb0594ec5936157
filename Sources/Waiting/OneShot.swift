internal import Synchronization

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
