internal import Synchronization

/// Running the handler, and what passes between its task and libmicrohttpd's thread.
extension Connection {
  /// So much content beyond the limit is dropped while an answer waits for the content's end: a
  /// client that sends somewhat too much is told so, one without end is cut.
  var maxExcess: Int { max(1 << 20, service.configuration.maxBody) }

  /// The same of content that comes for as long as it likes: a client that has sent a list before is told so.
  static let maxUnread = 1 << 30

  /// Runs the handler on this very thread till it finishes or first waits; from there it goes on on
  /// Swift's threads.
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
      return state.hasLeft || state.isEnding
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
        try await takeContent(serial)
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
      state.timing.goOn(now())
      resume(&state)
      return (wake, waited)
    }
    wake?.run()
    if waited { service.handlerWaited() }
  }

  /// What the thread does about a request that is whole.
  enum Outcome { case respond(Response), wait, close }

  /// Takes the handler's answer, or suspends the connection until it is there: in one step.
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

  /// Takes the content that is there, or waits for some; lets the client send on if it was held
  /// back.
  private func takeContent(_ serial: UInt64) async throws(BodyError) -> [UInt8]? {
    if let piece = takeNow(serial) { return try piece.get() }
    let piece: BodyBuffer.Piece = await withTaskCancellationHandler {
      await withUnsafeContinuation { waiter in
        let piece = takeOrWait(serial, waiter)
        if let piece { waiter.resume(returning: piece) }
      }
    } onCancel: {
      state.withLock { $0.upload?.release() }?.run()
    }
    return try piece.get()
  }

  private func takeNow(_ serial: UInt64) -> BodyBuffer.Piece? {
    state.withLock { take(&$0, serial) }
  }

  private func takeOrWait(_ serial: UInt64, _ waiter: BodyBuffer.Waiter) -> BodyBuffer.Piece? {
    state.withLock { state in
      if let piece = take(&state, serial) { return piece }
      // Looked at under the lock: a cancellation from here on finds the waiter.
      guard !Task.isCancelled else { return .failure(.disconnected) }
      state.upload?.wait(waiter)
      return nil
    }
  }

  private func take(_ state: inout State, _ serial: UInt64) -> BodyBuffer.Piece? {
    guard state.upload?.serial == serial else { return .failure(.disconnected) }
    let piece = state.upload?.take()
    if case .heldBack = state.timing.stage {
      state.timing.goOn(now())
      resume(&state)
    }
    return piece
  }
}
