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

/// Runs the handler, and passes data between its task and libmicrohttpd's thread.
extension ClientConnection {
  /// The bytes beyond the limit that are read and dropped while a response waits for the end of the content.
  /// A client that sends a little too much receives the response; the connection of one that sends more is
  /// closed.
  var maxExcess: Int { max(1 << 20, service.configuration.maxBody) }

  /// The same limit for streamed content: clients may have sent a large batch before they read the refusal.
  static let maxUnread = 1 << 30

  /// Runs the handler on the current thread until it finishes or suspends. After that it continues on Swift's
  /// threads.
  func run(_ head: RequestHead) {
    self.head = nil
    let request = request(head)
    let task = Task.immediate { [self] in
      handlerFinished(await service.handler(request))
    }
    let isUnwanted = state.withLock { state in
      guard state.response == nil else { return false }
      state.task = task
      service.handlerWaits()
      return state.isDisconnected || state.isEnding
    }
    if isUnwanted { task.cancel() }
  }

  private func request(_ head: RequestHead) -> Request {
    let body: RequestBody
    if head.declaredLength == 0 {
      body = .empty
    } else {
      let serial = state.withLock { $0.serial }
      body = RequestBody(declaredLength: head.declaredLength) { [self] () throws(BodyError) in
        try await readContent(serial)
      }
    }
    return Request(
      method: head.method, path: head.target.path, query: head.target.query, fields: head.fields,
      remoteAddress: remoteAddress, body: body)
  }

  private func handlerFinished(_ response: Response) {
    let (wake, waited) = state.withLock { state in
      let waited = state.task.take() != nil
      state.response = response
      let wake = state.upload?.fail(.disconnected)
      state.timing.resumeDeadline(now())
      resume(&state)
      return (wake, waited)
    }
    wake?.run()
    if waited { service.handlerWaited() }
  }

  /// The next action of libmicrohttpd's thread after a complete request.
  enum Outcome { case respond(Response), wait, close }

  /// Returns the handler's response, or suspends the connection until there is one. Both happen under one
  /// lock.
  func answerOrSuspend() -> Outcome {
    state.withLock { state in
      state.timing.stage = .answer
      if let response = state.response.take() { return .respond(response) }
      guard !state.isEnding else { return .close }
      suspend(&state)
      return .wait
    }
  }

  // MARK: Content

  /// Returns the available content, or waits for some. Continues reading from the client if the buffer was
  /// full.
  private func readContent(_ serial: UInt64) async throws(BodyError) -> [UInt8]? {
    if let piece = readAvailable(serial) { return try piece.get() }
    let piece: BodyBuffer.Piece = await withTaskCancellationHandler {
      await withUnsafeContinuation { waiter in
        let piece = readOrWait(serial, waiter)
        if let piece { waiter.resume(returning: piece) }
      }
    } onCancel: {
      state.withLock { $0.upload?.release() }?.run()
    }
    return try piece.get()
  }

  private func readAvailable(_ serial: UInt64) -> BodyBuffer.Piece? {
    state.withLock { readBuffered(&$0, serial) }
  }

  private func readOrWait(_ serial: UInt64, _ waiter: BodyBuffer.Waiter) -> BodyBuffer.Piece? {
    state.withLock { state in
      if let piece = readBuffered(&state, serial) { return piece }
      // Checked under the lock: a later cancellation finds the waiting reader.
      guard !Task.isCancelled else { return .failure(.disconnected) }
      state.upload?.wait(waiter)
      return nil
    }
  }

  private func readBuffered(_ state: inout State, _ serial: UInt64) -> BodyBuffer.Piece? {
    guard state.upload?.serial == serial else { return .failure(.disconnected) }
    let piece = state.upload?.dequeue()
    if case .heldBack = state.timing.stage {
      state.timing.resumeDeadline(now())
      resume(&state)
    }
    return piece
  }
}

/// Passes responses to libmicrohttpd. Everything here runs on its thread for the connection.
extension ClientConnection {
  /// Queues a response before the content has been read. libmicrohttpd then closes the connection.
  func respondEarly(_ response: Response) -> MHD_Result {
    state.withLock { $0.timing.stage = .answer }
    lingers = true
    return queue(response)
  }

  /// Queues a response for sending.
  func queue(_ response: Response) -> MHD_Result {
    step = .answered
    keeping = response.retained
    guard let answer = create(response.content) else { return .NO }
    defer { MHD_destroy_response(answer) }
    for field in response.fields where !Self.isFramingField(field.name) {
      // libmicrohttpd refuses a name or value that would split the header section.
      _ = field.name.rawName.withCString { name in
        field.value.withCString { MHD_add_response_header(answer, name, $0) }
      }
    }
    // Close the connection after a chunked request. libmicrohttpd accepts line ends in chunks that a proxy
    // may not (RFC 9112, section 7.1). Content that the proxy read could otherwise become a second request
    // here (request smuggling).
    if service.isDraining || slot == .probe || isChunked {
      MHD_add_response_header(answer, "Connection", "close")
    }
    return MHD_queue_response(handle, UInt32(response.status.code), answer)
  }

  /// Whether the field controls framing, so that a handler must not set it. libmicrohttpd itself refuses
  /// `Content-Length`.
  private static func isFramingField(_ name: HTTPField.Name) -> Bool {
    // Comparing lengths first is enough for most names.
    switch name.rawName.utf8.count {
    case 10: name == .connection
    case 17: name == .transferEncoding
    default: false
    }
  }

  private func create(_ content: Response.Content) -> OpaquePointer? {
    switch content {
    case .none: return MHD_create_response_from_buffer(0, nil, .RESPMEM_PERSISTENT)
    case .bytes(let bytes):
      sending = content
      // The array's storage does not move while `sending` keeps it unchanged, until libmicrohttpd reports the
      // end of the request.
      let buffer = bytes.withUnsafeBytes { UnsafeMutableRawPointer(mutating: $0.baseAddress) }
      return MHD_create_response_from_buffer(bytes.count, buffer, .RESPMEM_PERSISTENT)
    case .file(let descriptor, let offset, let count, _):
      guard count > 0 else { return create(.none) }
      // libmicrohttpd closes the descriptor that it receives. It therefore gets a duplicate, which stays
      // valid when the owner is released.
      let copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 3)
      guard copy >= 0 else { return nil }
      return MHD_create_response_from_fd_at_offset64(UInt64(count), copy, UInt64(offset))
    case .omitted(let count):
      // libmicrohttpd takes the length from the response and calls no reader for HEAD and 304.
      let response = MHD_create_response_from_callback(
        count.map { UInt64($0) } ?? .max, 1024, StreamWriter.reader, nil, nil)
      // Without a length libmicrohttpd would announce chunks and send the last one even after HEAD (RFC 9112
      // section 6.3).
      if count == nil, let response { CMicroHTTPD_sendUnframed(response) }
      return response
    case .stream where isHead: return create(.omitted(count: nil))
    case .stream(let stream):
      let writer = Unmanaged.passRetained(StreamWriter(stream, on: self))
      // The block size matters only for HTTP/1.0 clients: chunks are built in the connection's own memory.
      guard
        let response = MHD_create_response_from_callback(
          .max, 1024, StreamWriter.reader, writer.toOpaque(), StreamWriter.free)
      else {
        writer.release()
        return nil
      }
      return response
    }
  }
}
