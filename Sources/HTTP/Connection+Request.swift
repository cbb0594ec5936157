internal import CMicroHTTPD
import Glibc
import HTTPTypes
internal import Logging
internal import Synchronization

/// A request's target as the client sent it.
struct SentTarget {
  let bytes: [UInt8]
  /// Where the library has it. Only `BufferCheck` compares this address; what is there is not read again.
  let start: UnsafePointer<CChar>

  /// Copies the target, which libmicrohttpd reports before it parses it, and hides the query from the library.
  ///
  /// The NUL behind the question mark is all that this program writes to the library's memory. No option turns off the
  /// parsing of the query, which takes about 64 bytes of the connection's memory per argument: the library would refuse
  /// a query of a few hundred `&`, in HTML. If a later release parses a copy, it does so, and nothing else changes.
  init(_ target: UnsafePointer<CChar>) {
    start = target
    bytes = Array(UnsafeRawBufferPointer(start: target, count: strlen(target)))
    guard let mark = bytes.firstIndex(of: UInt8(ascii: "?")) else { return }
    UnsafeMutablePointer(mutating: target)[mark + 1] = 0
  }
}

/// The calls for one request, in their order. All on libmicrohttpd's thread.
extension Connection {
  /// The request line is there.
  func requestLineCame(_ target: UnsafePointer<CChar>?) {
    step = .head
    sentTarget = target.map(SentTarget.init)
  }

  /// The head is there: judges it, and only then lets the content come.
  ///
  /// An answer queued now closes the connection, so that is for refusals. Others are given in the
  /// next call, which comes at once if there is no content.
  func headCame(_ method: UnsafePointer<CChar>, _ version: UnsafePointer<CChar>) -> MHD_Result {
    // From here on its place is not another's to take.
    state.withLock { $0.timing.stage = .answer }
    isActive = true
    service.requestBegan()
    guard let target = sentTarget else { return .NO }
    do throws(RefusalError) {
      if !MicroHTTPDLibrary.isStrict { try BufferCheck.check(handle, method, target, version) }
      let head = try RequestHead(handle, method, target, version, service.configuration)
      guard place == .regular || service.isProbe(head) else { throw RefusalError(.overloaded) }
      self.head = head
      isChunked = head.declaredLength == nil
      isHead = head.method == .head
      if head.declaredLength == 0 {
        step = .complete
        return .YES
      }
      return contentFollows(head)
    } catch {
      return answerEarly(response(to: error.refusal))
    }
  }

  /// The answer to a request that is refused.
  func response(to refusal: Refusal) -> Response {
    service.log.debug(
      "refused", metadata: ["client": "\(remoteAddress)", "why": "\(refusal)"])
    let origin = MHD_lookup_connection_value(handle, .HEADER_KIND, "Origin")
    return service.refusal(refusal, origin.map { String(cString: $0) })
  }

  /// Small content is gathered before the handler runs, which then need not wait for it; a client
  /// that drips it holds no task. Larger content streams.
  private func contentFollows(_ head: RequestHead) -> MHD_Result {
    let isSmall = head.declaredLength.map { $0 <= BodyBuffer.gathered } ?? false
    step = isSmall ? .gathering : .streaming
    state.withLock { state in
      let limits = service.configuration
      let limit = limits.takesStreams(head.target.path) ? nil : limits.maxBody
      state.upload = BodyBuffer(serial: state.serial, limit: limit)
      state.timing.awaitContent(now(), serial: state.serial, service.configuration)
    }
    guard !isSmall else { return .YES }
    run(head)
    // A handler that wants none of the content, because it says 401 for instance, is done by now.
    guard let response = state.withLock({ $0.response.take() }) else { return .YES }
    return answerEarly(response)
  }

  /// A piece of the content is there.
  /// - Returns: whether the connection goes on, and how much of the piece was taken; what is left
  ///   comes again.
  func contentCame(_ piece: UnsafeRawBufferPointer) -> (MHD_Result, taken: Int) {
    let (wake, result, taken): (BodyBuffer.Wake?, MHD_Result, Int) = state.withLock { state in
      guard state.upload != nil, !state.isEnding else { return (nil, .NO, 0) }
      if state.upload!.isFull {
        state.timing.holdBack(now())
        suspend(&state)
        return (nil, .YES, 0)
      }
      let wake = state.upload!.append(piece)
      if state.upload!.earnsTime { state.timing.contentCame(now(), service.configuration) }
      // In the middle of the content libmicrohttpd takes no answer: it is read to its end, if that
      // is near.
      let excess = state.upload!.excess
      let most = state.upload!.isStream ? Self.maxUnread : maxExcess
      return (wake, excess > most ? .NO : .YES, piece.count)
    }
    wake?.run()
    if result == .NO { lingers = true }
    return (result, taken)
  }

  /// The whole request is there, or the answer to it.
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
      return state.upload?.end()
    }?.run()
  }

  /// The request is over, its answer sent or not.
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
