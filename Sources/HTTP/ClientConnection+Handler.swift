internal import Synchronization

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

  /// What libmicrohttpd's thread does with a complete request.
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
