internal import Synchronization

/// A value that comes once, for the one task that waits for it.
public final class OneShot<Value: Sendable>: Sendable {
  private enum State {
    case empty
    case awaited(CheckedContinuation<Value?, Never>)
    case fulfilled(Value)
    /// It was taken, or nobody waits for it any more.
    case over
  }

  private let state = Mutex(State.empty)

  /// One that nobody has fulfilled yet.
  public init() {}

  /// Gives the value to whoever waits for it, now or later.
  /// - Returns: false where one was given before, or the task that waited was cancelled: the value then goes nowhere.
  @discardableResult
  public func fulfil(_ value: Value) -> Bool {
    let (isTaken, waiter) = state.withLock { state -> (Bool, CheckedContinuation<Value?, Never>?) in
      switch state {
      case .empty:
        state = .fulfilled(value)
        return (true, nil)
      case .awaited(let waiter):
        state = .over
        return (true, waiter)
      case .fulfilled, .over: return (false, nil)
      }
    }
    waiter?.resume(returning: value)
    return isTaken
  }

  /// Waits for the value; nil when the task is cancelled first. For one task, once.
  public func value() async -> Value? {
    await withCancellation {
      await withCheckedContinuation { continuation in
        let answer = state.withLock { state -> Value?? in
          switch state {
          // Looked at under the lock: a cancellation from here on finds the waiter.
          case .empty where !Task.isCancelled:
            state = .awaited(continuation)
            return nil
          case .fulfilled(let value):
            state = .over
            return .some(value)
          case .empty, .awaited, .over:
            state = .over
            return .some(nil)
          }
        }
        if let answer { continuation.resume(returning: answer) }
      }
    } onCancel: {
      giveUp()
    }
  }

  /// The same, nil also when the deadline comes first.
  public func value(before deadline: ContinuousClock.Instant) async -> Value? {
    let alarm = Task {
      try? await Task.sleep(until: deadline, clock: .continuous)
      if !Task.isCancelled { giveUp() }
    }
    defer { alarm.cancel() }
    return await value()
  }

  /// Whether the value is there or was taken, or nobody waits for it any more.
  public var isOver: Bool {
    state.withLock { state in
      switch state {
      case .empty, .awaited: false
      case .fulfilled, .over: true
      }
    }
  }

  private func giveUp() {
    let waiter = state.withLock { state -> CheckedContinuation<Value?, Never>? in
      switch state {
      case .awaited(let waiter):
        state = .over
        return waiter
      case .empty:
        state = .over
        return nil
      case .fulfilled, .over: return nil
      }
    }
    waiter?.resume(returning: nil)
  }
}

extension OneShot where Value == Void {
  /// Lets whoever waits go on.
  @discardableResult
  public func fulfil() -> Bool { fulfil(()) }
}
