internal import CMicroHTTPD
import Glibc
import HTTPTypes
internal import Logging
internal import Synchronization

/// A request's target as the client sent it.
struct SentTarget {
  let bytes: [UInt8]
  /// The target's address in the library's memory. `BufferCheck` compares this address but does not read from
  /// it.
  let start: UnsafePointer<CChar>

  /// Copies the target before libmicrohttpd parses it, and hides the query from the library.
  ///
  /// Otherwise the library would parse the query and use about 64 bytes of the connection's memory per
  /// argument. It would refuse a query with a few hundred `&`, in HTML, and no option turns this off.
  ///
  /// The NUL after the question mark is the only byte that this program writes to the library's memory. If a
  /// later release parses a copy, the NUL merely has no effect.
  init(_ target: UnsafePointer<CChar>) {
    start = target
    bytes = Array(UnsafeRawBufferPointer(start: target, count: strlen(target)))
    guard let mark = bytes.firstIndex(of: UInt8(ascii: "?")) else { return }
    UnsafeMutablePointer(mutating: target)[mark + 1] = 0
  }
}

/// libmicrohttpd's callbacks for one request, in the order in which they are called, on its thread for the
/// connection.
extension ClientConnection {
  /// Called when the request line was read.
  func requestLineReceived(_ target: UnsafePointer<CChar>?) {
    step = .head
    sentTarget = target.map(SentTarget.init)
  }

  /// Called when the head is complete. Checks it, and only then accepts the content.
  ///
  /// A response queued in this call closes the connection, so only refusals are sent here. Other responses
  /// are queued in the next call, which follows at once if there is no content.
  func headReceived(_ method: UnsafePointer<CChar>, _ version: UnsafePointer<CChar>) -> MHD_Result {
    // From now on the connection must not be evicted.
    state.withLock { $0.timing.stage = .answer }
    isActive = true
    service.requestBegan()
    guard let target = sentTarget else { return .NO }
    do throws(RefusalError) {
      if !MicroHTTPDLibrary.isStrict { try BufferCheck.check(handle, method, target, version) }
      let head = try RequestHead(handle, method, target, version, service.configuration)
      guard slot == .regular || service.isProbe(head) else { throw RefusalError(.overloaded) }
      self.head = head
      isChunked = head.declaredLength == nil
      isHead = head.method == .head
      if head.declaredLength == 0 {
        step = .complete
        return .YES
      }
      return contentFollows(head)
    } catch {
      return respondEarly(response(to: error.refusal))
    }
  }

  /// Returns the response to a refused request.
  func response(to refusal: Refusal) -> Response {
    service.log.debug(
      "request refused", metadata: ["client": "\(remoteAddress)", "why": "\(refusal)"])
    let origin = MHD_lookup_connection_value(handle, .HEADER_KIND, "Origin")
    return service.refusal(refusal, origin.map { String(cString: $0) })
  }

  /// Prepares to read the content. Small content is read completely before the handler runs, so a client that
  /// sends it slowly does not occupy a task. Larger content is streamed to the handler.
  private func contentFollows(_ head: RequestHead) -> MHD_Result {
    let isSmall = head.declaredLength.map { $0 <= BodyBuffer.maxPrebuffered } ?? false
    step = isSmall ? .gathering : .streaming
    state.withLock { state in
      let limits = service.configuration
      let limit = limits.takesStreams(head.target.path) ? nil : limits.maxBody
      state.upload = BodyBuffer(serial: state.serial, limit: limit)
      state.timing.awaitContent(now(), serial: state.serial, service.configuration)
    }
    guard !isSmall else { return .YES }
    run(head)
    // The handler may already have responded without reading the content, for example with 401.
    guard let response = state.withLock({ $0.response.take() }) else { return .YES }
    return respondEarly(response)
  }

  /// Called for each piece of the content.
  /// - Returns: Whether the connection continues, and how many bytes were used. libmicrohttpd passes the rest
  ///   again.
  func contentReceived(_ piece: UnsafeRawBufferPointer) -> (MHD_Result, taken: Int) {
    let (wake, result, taken): (BodyBuffer.Wake?, MHD_Result, Int) = state.withLock { state in
      guard state.upload != nil, !state.isEnding else { return (nil, .NO, 0) }
      if state.upload!.isFull {
        state.timing.pauseDeadline(now())
        suspend(&state)
        return (nil, .YES, 0)
      }
      let wake = state.upload!.append(piece)
      if state.upload!.extendsDeadline {
        state.timing.restartDeadline(now(), service.configuration)
      }
      // libmicrohttpd accepts no response in the middle of the content. The rest is read and dropped, up to a
      // limit.
      let excess = state.upload!.excess
      let most = state.upload!.isStream ? Self.maxUnread : maxExcess
      return (wake, excess > most ? .NO : .YES, piece.count)
    }
    wake?.run()
    if result == .NO { lingers = true }
    return (result, taken)
  }

  /// Called when the request is complete, and again after a suspended connection was resumed.
  func requestCompleted() -> MHD_Result {
    if step == .gathering || step == .streaming { finishContent() }
    if let head { run(head) }
    switch answerOrSuspend() {
    case .respond(let response): return queue(response)
    case .wait: return .YES
    case .close: return .NO
    }
  }

  private func finishContent() {
    step = .complete
    state.withLock { state in
      state.timing.stage = .answer
      return state.upload?.finish()
    }?.run()
  }

  /// Called when the request is over, whether or not its response was sent.
  func requestEnded() {
    let (task, wake) = state.withLock { state in
      let left = (state.task, state.upload?.fail(.disconnected))
      state.serial += 1
      state.upload = nil
      state.response = nil
      state.timing.stage = .head
      state.timing.idleSince = now()
      return left
    }
    wake?.run()
    task?.cancel()
    forgetStream()
    sending = .none
    keeping = nil
    head = nil
    sentTarget = nil
    if isActive {
      isActive = false
      service.requestEnded()
    }
  }
}
