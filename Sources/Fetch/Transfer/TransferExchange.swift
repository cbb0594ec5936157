internal import Jobs
internal import Synchronization
internal import Waiting

/// One request and its response. It passes data from the loop's thread to the one task that reads it. A lock
/// protects all shared state, so that no wake-up is lost.
///
/// The loop appends bytes until the buffer is full and then pauses the transfer. The task takes the whole
/// buffer at once, without copying it, and continues the transfer.
final class TransferExchange: ImageBytes {
  /// The result of appending bytes.
  enum Acceptance {
    case taken, holdBack
    /// The exchange has ended, so the bytes are not needed.
    case refused
    /// The response exceeds the size limit.
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

  /// How the exchange ended. Bytes received before may still be buffered.
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

// The loop's side. These functions neither block nor call libcurl.
extension TransferExchange {
  var isOver: Bool { state.withLock { $0.ending != nil } }

  /// The number of bytes of the body accepted so far.
  var received: Int { state.withLock { $0.received } }

  /// Stores the response's head. ``resumeWaiter()`` passes it to a waiting task at the end of the pass: libcurl
  /// returns one read as many pieces, and waking a task costs more than appending a piece.
  func deliver(_ head: ResponseHead) {
    let isAwaited = state.withLock { state in
      state.head = head
      return state.waiter != nil
    }
    if isAwaited { loop.exchangesWithData.append(self) }
  }

  /// Appends bytes of the body.
  /// - Parameter mayHoldBack: False: the buffer grows beyond its capacity instead of pausing the transfer.
  func append(
    _ chunk: UnsafeBufferPointer<UInt8>, mayHoldBack: Bool = true
  ) -> Acceptance {
    let (acceptance, isAwaited) = state.withLock { state in
      let acceptance = accept(chunk, mayHoldBack, &state)
      return (acceptance, state.waiter != nil)
    }
    if isAwaited { loop.exchangesWithData.append(self) }
    return acceptance
  }

  /// Resumes the waiting task if the data it waits for is available.
  func resumeWaiter() {
    let (wake, resumes) = state.withLock { state -> ((() -> Void)?, Bool) in
      switch (state.waiter, state.head) {
      case (.head(let continuation), let head?):
        state.waiter = nil
        return ({ continuation.resume(returning: .success(head)) }, false)
      case (.bytes(let continuation), _) where !state.bytes.isEmpty:
        state.waiter = nil
        defer { state.isHeldBack = false }
        let bytes = Self.drain(&state)
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

  /// Ends the exchange. Only the first call counts. A waiting task receives the data that arrived before, and
  /// sees the end at its next call.
  /// - Parameter error: Nil if the response is complete.
  /// - Returns: Whether this was the first call.
  @discardableResult
  func finish(_ error: FetchError?) -> Bool {
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
        let bytes = state.bytes.isEmpty ? nil : Self.drain(&state)
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

  private static func drain(_ state: inout State) -> [UInt8] {
    let bytes = state.bytes
    state.bytes = []
    return bytes
  }
}

// The reading task's side.
extension TransferExchange {
  /// Waits for the header section of the final response.
  func head() async throws(FetchError) -> ResponseHead {
    let result = await withCancellation {
      await withCheckedContinuation { continuation in
        let result = state.withLock { state -> Result<ResponseHead, FetchError>? in
          if case .failed(.cancelled) = state.ending { return .failure(.cancelled) }
          // The head is returned even if the transfer has failed since, because the bytes received before the
          // failure can be kept.
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

  /// Waits for bytes and returns all that are buffered; nil after the last.
  func next() async throws(FetchError) -> [UInt8]? {
    if Task.isCancelled {
      cancel()
      throw .cancelled
    }
    let result = await withCancellation {
      await withCheckedContinuation { continuation in
        let (result, resumes) = state.withLock { state in takeBytes(&state, orWait: continuation) }
        if resumes { loop.post(.resume(id)) }
        if let result { continuation.resume(returning: result) }
      }
    } onCancel: {
      cancel()
    }
    return try result.get()
  }

  private func takeBytes(
    _ state: inout State,
    orWait continuation: CheckedContinuation<Result<[UInt8]?, FetchError>, Never>
  ) -> (Result<[UInt8]?, FetchError>?, resumes: Bool) {
    if !state.bytes.isEmpty {
      let resumes = state.isHeldBack
      state.isHeldBack = false
      return (.success(Self.drain(&state)), resumes)
    }
    switch state.ending {
    case .complete: return (.success(nil), false)
    case .failed(let error): return (.failure(error), false)
    case nil:
      precondition(state.waiter == nil, "only one task at a time may read an image's bytes")
      state.waiter = .bytes(continuation)
      return (nil, false)
    }
  }

  /// Ends the exchange as cancelled and closes its connection.
  func cancel() {
    if finish(.cancelled) { loop.post(.cancel(id)) }
  }

  /// Discards the rest of the body. If it is short, the connection can be used again.
  func discard() { loop.post(.discard(id)) }
}

/// Settings that all transfers of a fetcher share.
struct TransferSettings: Sendable {
  var connectTimeout: Duration
  var stallTimeout: Duration
  var userAgent: String
  var certificateAuthorities: String?
  var maxConnections: Int
  var maxIdleConnections: Int
  var maxHeaderBytes: Int
}

/// The input of one transfer.
struct TransferPlan: Sendable {
  var exchange: TransferExchange
  var route: TransferRoute
  var method = OutgoingRequest.Method.get
  /// Checked fields of the request. Defaults such as `User-Agent` are added later.
  var headers: [HeaderField]
  var content: OutgoingContent?
  /// The end of the whole fetch. `timeout` is its length, for the error message.
  var deadline: ContinuousClock.Instant
  var timeout: Duration
  /// When this hop began, including the name lookup.
  var started: ContinuousClock.Instant
}

extension Duration {
  /// Seconds rounded to milliseconds, so that a configured 0.3 is reported as 0.3.
  var roundedSeconds: Double { Double(inMilliseconds) / 1_000 }
}

/// The destination of one request. Everything is decided and every address is checked before libcurl receives
/// it.
struct TransferRoute: Sendable {
  /// The URL with its host in ASCII.
  var url: String
  /// The host as named in errors.
  var host: String
  var port: Int
  /// The addresses to try, in this order; at least one.
  var addresses: [IPAddress]
  /// The time that the name lookup took.
  var nameTime: Duration
  /// The policy that allowed these addresses. It is checked again for each connection.
  var policy: AddressPolicy
  /// The egress proxy that connects to the first address; nil: none.
  var proxy: ProxyRoute?

  /// The entries for libcurl's name cache: `name:port:address,address`.
  var pins: [String] {
    if let proxy { return [Self.pin(proxy.host, proxy.port, proxy.addresses)].compactMap { $0 } }
    return [Self.pin(host, port, addresses)].compactMap { $0 }
  }

  /// Whether the host to connect to is an IPv6 address, which needs no pin.
  var hasNoName: Bool { (proxy?.host ?? host).contains(":") }

  /// Nil for an IPv6 address: libcurl never looks it up, and the format cannot contain its colons.
  private static func pin(_ host: String, _ port: Int, _ addresses: [IPAddress]) -> String? {
    host.contains(":") ? nil : "\(host):\(port):\(addresses.map(\.inURL).joined(separator: ","))"
  }
}

/// The operator's proxy. The policy does not apply to its address.
struct ProxyRoute: Sendable {
  /// The proxy's URL, with credentials if configured.
  var url: String
  var host: String
  var port: Int
  var addresses: [IPAddress]

  /// The error detail for clients. It contains neither the proxy's name nor its address.
  static let unreachable = "the egress proxy could not be reached"
  /// The error detail if the proxy answered CONNECT with an error status.
  static func refused(_ status: Int) -> String { "the egress proxy answered \(status)" }
}
