internal import Jobs
internal import Synchronization
internal import Waiting

/// One request and its response, between the loop's thread that brings the bytes and the one task
/// that takes them. Everything that both touch is behind one lock, so that no wake-up is lost.
///
/// The loop appends until the buffer is full, then asks libcurl to hold back; the task takes the
/// whole buffer at once, as the array that it is, and lets the transfer go on.
final class Exchange: ImageBytes {
  /// What becomes of bytes that were offered.
  enum Acceptance {
    case taken, holdBack
    /// Nobody wants them any more.
    case refused
    /// They are more than the limit.
    case tooMany(limit: Int)
  }

  private struct State {
    var head: ResponseHead?
    var bytes: [UInt8] = []
    var received = 0
    var isHeldBack = false
    var ending: Ending?
    var waiter: Waiter?
  }

  /// How it ended; the bytes that came before may still wait to be taken.
  private enum Ending {
    case complete
    case failed(FetchError)
  }

  private enum Waiter {
    case head(CheckedContinuation<Result<ResponseHead, FetchError>, Never>)
    case bytes(CheckedContinuation<Result<[UInt8]?, FetchError>, Never>)
  }

  let id: UInt64
  private let loop: EventLoop
  private let capacity: Int
  let maxBytes: Int
  private let state = Mutex(State())

  init(id: UInt64, loop: EventLoop, capacity: Int, maxBytes: Int) {
    self.id = id
    self.loop = loop
    self.capacity = capacity
    self.maxBytes = maxBytes
  }
}

// The loop's side. None of this blocks or calls libcurl.
extension Exchange {
  var isOver: Bool { state.withLock { $0.ending != nil } }

  /// Bytes of the body accepted so far.
  var received: Int { state.withLock { $0.received } }

  /// A task that waits gets it by ``handOver()``, as it gets bytes: what libcurl reads at once it gives in many pieces,
  /// and to wake a task costs more than to take one.
  func deliver(_ head: ResponseHead) {
    let isAwaited = state.withLock { state in
      state.head = head
      return state.waiter != nil
    }
    if isAwaited { loop.fed.append(self) }
  }

  /// - Parameter mayHoldBack: else the buffer grows beyond its capacity.
  func append(
    _ chunk: UnsafeBufferPointer<UInt8>, mayHoldBack: Bool = true
  ) -> Acceptance {
    let (acceptance, isAwaited) = state.withLock { state in
      let acceptance = accept(chunk, mayHoldBack, &state)
      return (acceptance, state.waiter != nil)
    }
    if isAwaited { loop.fed.append(self) }
    return acceptance
  }

  /// Gives what has come to the task, if it waits for that.
  func handOver() {
    let (wake, resumes) = state.withLock { state -> ((() -> Void)?, Bool) in
      switch (state.waiter, state.head) {
      case (.head(let continuation), let head?):
        state.waiter = nil
        return ({ continuation.resume(returning: .success(head)) }, false)
      case (.bytes(let continuation), _) where !state.bytes.isEmpty:
        state.waiter = nil
        defer { state.isHeldBack = false }
        let bytes = Self.takeAll(&state)
        return ({ continuation.resume(returning: .success(bytes)) }, state.isHeldBack)
      default: return (nil, false)
      }
    }
    if resumes { loop.post(.resume(id)) }
    wake?()
  }

  private func accept(
    _ chunk: UnsafeBufferPointer<UInt8>, _ mayHoldBack: Bool, _ state: inout State
  ) -> Acceptance {
    guard state.ending == nil else { return .refused }
    guard chunk.count <= maxBytes - state.received else { return .tooMany(limit: maxBytes) }
    guard state.bytes.isEmpty || state.bytes.count + chunk.count <= capacity || !mayHoldBack else {
      state.isHeldBack = true
      return .holdBack
    }
    state.bytes.append(contentsOf: chunk)
    state.received += chunk.count
    return .taken
  }

  /// Ends it; the first ending stays. Whoever waits gets what came before it, and then finds the end without waiting.
  /// - Parameter error: nil when the response is there whole.
  /// - Returns: whether this was the first.
  @discardableResult
  func end(_ error: FetchError?) -> Bool {
    let (wake, isFirst) = state.withLock { state -> ((() -> Void)?, Bool) in
      guard state.ending == nil else { return (nil, false) }
      state.ending = error.map { .failed($0) } ?? .complete
      if error == .cancelled { state.bytes = [] }
      switch state.waiter.take() {
      case .head(let continuation):
        let head = error == .cancelled ? nil : state.head
        return (
          {
            continuation.resume(
              returning: head.map { .success($0) } ?? .failure(error ?? .cancelled))
          },
          true
        )
      case .bytes(let continuation):
        let bytes = state.bytes.isEmpty ? nil : Self.takeAll(&state)
        return (
          {
            continuation.resume(
              returning: bytes == nil
                ? error.map { .failure($0) } ?? .success(nil) : .success(bytes))
          },
          true
        )
      case nil: return (nil, true)
      }
    }
    wake?()
    return isFirst
  }

  private static func takeAll(_ state: inout State) -> [UInt8] {
    let bytes = state.bytes
    state.bytes = []
    return bytes
  }
}

// The task's side.
extension Exchange {
  /// Waits for the final response's header section.
  func head() async throws(FetchError) -> ResponseHead {
    let result = await withCancellation {
      await withCheckedContinuation { continuation in
        let result = state.withLock { state -> Result<ResponseHead, FetchError>? in
          if case .failed(.cancelled) = state.ending { return .failure(.cancelled) }
          // Though it may have broken off since: the bytes before that are worth keeping.
          if let head = state.head { return .success(head) }
          if case .failed(let error) = state.ending { return .failure(error) }
          state.waiter = .head(continuation)
          return nil
        }
        if let result { continuation.resume(returning: result) }
      }
    } onCancel: {
      cancel()
    }
    if Task.isCancelled {
      cancel()
      throw .cancelled
    }
    return try result.get()
  }

  /// Waits for bytes and takes all there are; nil after the last.
  func next() async throws(FetchError) -> [UInt8]? {
    if Task.isCancelled {
      cancel()
      throw .cancelled
    }
    let result = await withCancellation {
      await withCheckedContinuation { continuation in
        let (result, resumes) = state.withLock { state in take(&state, or: continuation) }
        if resumes { loop.post(.resume(id)) }
        if let result { continuation.resume(returning: result) }
      }
    } onCancel: {
      cancel()
    }
    return try result.get()
  }

  private func take(
    _ state: inout State,
    or continuation: CheckedContinuation<Result<[UInt8]?, FetchError>, Never>
  ) -> (Result<[UInt8]?, FetchError>?, resumes: Bool) {
    if !state.bytes.isEmpty {
      let resumes = state.isHeldBack
      state.isHeldBack = false
      return (.success(Self.takeAll(&state)), resumes)
    }
    switch state.ending {
    case .complete: return (.success(nil), false)
    case .failed(let error): return (.failure(error), false)
    case nil:
      precondition(state.waiter == nil, "one task at a time takes an image's bytes")
      state.waiter = .bytes(continuation)
      return (nil, false)
    }
  }

  /// Ends it at once and closes its connection.
  func cancel() {
    if end(.cancelled) { loop.post(.cancel(id)) }
  }

  /// Lets the rest of an unwanted body pass, so that its connection can be used again.
  func discard() { loop.post(.discard(id)) }
}
