internal import Synchronization

/// The memory that decodes may hold at once. Who needs more than is left waits its turn: first come, first served.
final class DecodeMemory: Sendable {
  /// A part of it, given back when let go.
  final class Share: Sendable {
    private let memory: DecodeMemory
    private let bytes: Int
    fileprivate init(memory: DecodeMemory, bytes: Int) {
      self.memory = memory
      self.bytes = bytes
    }
    deinit { memory.giveBack(bytes) }
  }

  private struct Waiter {
    let number: UInt64
    let bytes: Int
    let continuation: CheckedContinuation<Bool, Never>
  }
  private struct State {
    var free: Int
    var waiters: [Waiter] = []
    var count: UInt64 = 0
  }

  /// Who needs no more than this part of all never waits.
  static let smallPart = 256

  private let total: Int
  private let state: Mutex<State>

  init(bytes: Int) {
    total = bytes
    state = Mutex(State(free: bytes))
  }

  /// Waits until `bytes` are free (all of it, where that is less) and takes them; nil when the task was cancelled.
  func share(_ bytes: Int) async -> Share? {
    let bytes = min(max(0, bytes), total)
    let number = state.withLock { state in
      state.count += 1
      return state.count
    }
    let isGranted = await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        let answer = state.withLock { state -> Bool? in
          if Task.isCancelled { return false }
          let isSmall = bytes <= total / Self.smallPart
          guard isSmall || state.waiters.isEmpty && state.free >= bytes else {
            state.waiters.append(Waiter(number: number, bytes: bytes, continuation: continuation))
            return nil
          }
          state.free -= bytes
          return true
        }
        if let answer { continuation.resume(returning: answer) }
      }
    } onCancel: {
      leave(number)
    }
    return isGranted ? Share(memory: self, bytes: bytes) : nil
  }

  /// How many wait for their share.
  var waiting: Int { state.withLock { $0.waiters.count } }

  private func leave(_ number: UInt64) {
    let (waiter, granted) = state.withLock { state -> (Waiter?, [Waiter]) in
      guard let index = state.waiters.firstIndex(where: { $0.number == number }) else {
        return (nil, [])
      }
      return (state.waiters.remove(at: index), Self.grant(&state))
    }
    waiter?.continuation.resume(returning: false)
    for waiter in granted { waiter.continuation.resume(returning: true) }
  }

  private func giveBack(_ bytes: Int) {
    let granted = state.withLock { state in
      state.free += bytes
      return Self.grant(&state)
    }
    for waiter in granted { waiter.continuation.resume(returning: true) }
  }

  private static func grant(_ state: inout State) -> [Waiter] {
    var granted: [Waiter] = []
    while let first = state.waiters.first, first.bytes <= state.free {
      state.free -= first.bytes
      granted.append(state.waiters.removeFirst())
    }
    return granted
  }
}
