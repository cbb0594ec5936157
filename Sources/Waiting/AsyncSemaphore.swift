internal import DequeModule
internal import Synchronization

/// A number of permits: a bound on what goes on, or is held, at once. Who finds too few waits; first come, first served.
public final class AsyncSemaphore: Sendable {
  /// Some of the permits, released when let go.
  public final class Permit: Sendable {
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
    let turn: OneShot<Permit>
  }

  private struct State {
    var free: Int
    var waiters: Deque<Waiter> = []
  }

  private let total: Int
  private let state: Mutex<State>

  /// - Parameter permits: in all.
  public init(_ permits: Int) {
    total = max(0, permits)
    state = Mutex(State(free: total))
  }

  /// How many tasks wait.
  public var waiting: Int { state.withLock { $0.waiters.count } }

  /// Waits until so many permits are free, or all of them where more are asked for; nil when the task is cancelled.
  public func acquire(_ count: Int = 1) async -> Permit? {
    let count = min(max(0, count), total)
    let turn = OneShot<Permit>()
    let isGranted = state.withLock { state in
      guard state.waiters.isEmpty, state.free >= count else {
        state.waiters.append(Waiter(count: count, turn: turn))
        return false
      }
      state.free -= count
      return true
    }
    if isGranted { return Permit(count, of: self) }
    if let permit = await turn.value() { return permit }
    leave(turn)
    return nil
  }

  /// Takes so many permits where as many as `rest` stay free and nobody waits; else nil.
  public func acquire(_ count: Int, leaving rest: Int) -> Permit? {
    let isGranted = state.withLock { state in
      guard state.waiters.isEmpty, state.free - count >= rest else { return false }
      state.free -= count
      return true
    }
    return isGranted ? Permit(count, of: self) : nil
  }

  /// Takes permits without waiting, also where none is free: others then wait the longer.
  public func overdraw(_ count: Int) -> Permit {
    let count = max(0, count)
    state.withLock { $0.free -= count }
    return Permit(count, of: self)
  }

  /// Whoever comes behind one that gave up may need less than it did.
  private func leave(_ turn: OneShot<Permit>) {
    grant { state in state.waiters.removeAll { $0.turn === turn } }
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
    // A permit that nobody waits for any more is released at once.
    for waiter in granted { waiter.turn.fulfil(Permit(waiter.count, of: self)) }
  }
}
