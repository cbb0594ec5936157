internal import HTTP
internal import HTTPTypes
internal import Jobs

/// Handlers that receive batches: their content is read line by line.
extension Routes {
  /// `POST /batches`.
  func createBatch(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    guard service.state != .draining else { throw Problem(JobsError.draining) }
    var query = Query(exchange.request.query)
    var decoder = decoder(for: exchange)
    var new = newBatch(&query, &decoder)
    try query.checkComplete(with: decoder.mistakes)
    decoder.mistakes = RequestErrors()
    let format = try format(of: exchange, isOptional: new.isOpen)
    let key = try exchange.idempotencyKey()
    if key != nil { new.content = BatchContent(isComplete: format == nil) }
    // Reserved before the batch is created, so that no batch is stored if the limits are reached.
    let room = format == nil ? [] : try self.reserveUpload(for: exchange)
    defer { for share in room { share.release() } }
    let begun = try await callEngine { () throws(JobsError) in
      try await service.createBatch(
        new, by: exchange.caller, key: key.map { exchange.key($0, content: []) })
    }
    var batch: Batch
    switch begun {
    case .new(let new): batch = new
    case .repeated(let batch):
      try await compare(exchange, format, with: batch)
      return answer(batch, .ok)
    case .gone(let id): return Self.goneResponse(id)
    }
    if let format { batch = try await receive(exchange, format, into: batch, begins: true) }
    var response = answer(batch, .accepted)
    response.fields[.location] = "/batches/\(batch.id)"
    return response
  }

  /// Compares the content of a repeated request with the batch of its idempotency key, as far as that was received.
  /// - Throws: `.keyReused` if they differ.
  private func compare(
    _ exchange: AuthorizedRequest, _ format: (any BatchFormat)?, with batch: Batch
  ) async throws(Problem) {
    guard let content = batch.content else { return }
    guard let format else {
      guard content.items == 0 else { throw Problem(JobsError.keyReused) }
      return
    }
    var reader = reader(of: batch, exchange)
    reader.compare(with: content)
    let upload = BatchUpload(format, into: reader)
    var count = 0
    var isEqual = upload.verdict
    while isEqual == nil {
      guard let piece = try await Self.next(of: exchange.request.body) else {
        try await bodyParser.parse(count, for: exchange.client) { () throws(Problem) in
          try upload.finish()
        }
        isEqual = upload.finalVerdict
        break
      }
      try checkAccess(exchange)
      count += piece.count
      do throws(Problem) {
        try await bodyParser.parse(count, for: exchange.client) { () throws(Problem) in
          try upload.read(piece)
        }
      } catch {
        // The first upload may have ended before this mistake.
        if upload.verdict == nil { throw error }
      }
      _ = upload.dequeueLines()
      isEqual = upload.verdict
    }
    guard isEqual == true else { throw Problem(JobsError.keyReused) }
  }

  /// The response if the batch of an idempotency key has been deleted.
  private static func goneResponse(_ id: BatchID) -> Response {
    Response(
      status: .ok, fields: [.contentType: "application/json", .cacheControl: "no-cache"],
      content: .bytes(BatchDocument.encode(gone: id)))
  }

  /// Deletes a batch whose first request failed, if no request can continue it.
  /// - Parameter received: the number of lines that this request stored.
  private func deleteRefused(
    _ batch: Batch, received: Int, after problem: Problem, _ exchange: AuthorizedRequest
  ) async {
    // Another request with the same key may have continued or closed the batch. Then the batch stays, because that
    // request succeeded.
    if Self.isRefused(batch, for: problem), received > 0 {
      try? await service.purge(batch: batch.id, refusedAfter: received, for: exchange.caller)
    } else if problem.status == .unprocessableContent || received == 0 && !batch.isOpen {
      // An open batch stays for a repeated request with its key, unless the mistake would occur again. A batch with
      // lines stays.
      try? await service.deleteEmptyBatch(batch.id, after: received)
    }
  }

  /// Whether the batch is refused as a whole. A mistake in the body would occur again, so the client must correct it
  /// and create another batch. An upload that was interrupted or is too long can be continued.
  private static func isRefused(_ batch: Batch, for problem: Problem) -> Bool {
    let isMistake =
      problem.status == .unprocessableContent || problem.code == .request(.malformedJSON)
    return isMistake && !batch.isOpen
  }

  private func newBatch(_ query: inout Query, _ decoder: inout SubmissionDecoder) -> NewBatch {
    var new = NewBatch(isOpen: query.bool("open"))
    if let name = query.value("name") {
      new.name = name
      if !(1...256 ~= name.unicodeScalars.count) || name.hasControls {
        query.addMistake("name", "Must have 1 to 256 characters and no control characters.")
      }
    }
    let location = Location(root: .query, member: "tag")
    if let tag = query.value("tag") {
      new.tags = decoder.tags(.array([.string(tag)]), at: location) ?? []
    }
    if let text = query.value("defaults") {
      new.defaults = text
      if let members = Self.defaults(text) {
        _ = decoder.template(from: members, at: .parameter("defaults"))
      } else {
        query.addMistake("defaults", "Must be a JSON object with members of a job.")
      }
    }
    if let text = query.value("notify") {
      if let members = Self.defaults(text) {
        new.webhook = decoder.batchWebhook(
          .object(members), at: Location(root: .query, member: "notify"))
      } else {
        query.addMistake("notify", "Must be a JSON object with url.")
      }
    }
    return new
  }

  private static func defaults(_ text: String) -> [JSONValue.Member]? {
    let value = try? JSONParser.parse(Array(text.utf8), maxValues: BatchLineReader.maxValues)
    guard case .object(let members)? = value else { return nil }
    return members
  }

  /// `POST /batches/{id}/lines`.
  func addLines(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    guard service.state != .draining else { throw Problem(JobsError.draining) }
    var query = Query(exchange.request.query)
    let from = query.int("from", in: 0...Self.mostLines)
    if from == nil, query.mistakes.isEmpty {
      query.addMistake("from", "Must be the number of lines received so far: the batch's received.")
    }
    try query.checkComplete()
    let format = try format(of: exchange, isOptional: false)
    let batch = try await currentBatch(exchange)
    guard let format, batch.state == .receiving, batch.received == from else {
      throw Problem(JobsError.batchContinuesElsewhere(batch))
    }
    let room = try reserveUpload(for: exchange)
    defer { for share in room { share.release() } }
    return answer(try await receive(exchange, format, into: batch), .accepted)
  }

  /// The format of the body; nil if there is none and none is required.
  private func format(
    of exchange: AuthorizedRequest, isOptional: Bool
  ) throws(Problem) -> (any BatchFormat)? {
    if isOptional, exchange.request.body.declaredLength == 0 { return nil }
    let type = exchange.isUnencoded ? MediaType(exchange.fields[.contentType]) : nil
    switch type?.essence {
    case "application/x-ndjson": return NDJSONFormat()
    case "text/uri-list", "text/plain": return URIListFormat()
    case "text/csv": return CSVFormat()
    case "application/json":
      return JSONBatchFormat(known: ["defaults", "notify"], following: ["notify"]) {
        (members, reader) throws(Problem) in
        try reader.apply(members: members, at: .body(index: nil))
      }
    default:
      throw Problem(
        .unsupportedMediaType,
        "Content-Type must be application/x-ndjson, text/uri-list, text/plain, text/csv or application/json, without a Content-Encoding."
      )
    }
  }

  /// Reserves a connection and the memory of an upload.
  private func reserveUpload(for exchange: AuthorizedRequest) throws(Problem) -> [Budget.Allocation]
  {
    let place = try reserveConnection(for: exchange)
    let share = memory.allocation(for: exchange.client)
    guard share.reserve(BatchWriter.memory) else {
      throw .overloaded(
        "Too many request bodies are being received. Retry after the time in Retry-After.")
    }
    return [place, share]
  }

  /// Receives lines until the body ends. All lines are stored when this returns, and a batch that is not open is
  /// closed. If the upload fails, the lines read so far are kept, except when the whole batch is refused.
  /// - Parameter begins: whether this request created the batch. If it fails, the batch may be deleted.
  private func receive(
    _ exchange: AuthorizedRequest, _ format: any BatchFormat, into batch: Batch,
    begins: Bool = false
  ) async throws(Problem) -> Batch {
    let writer = BatchWriter(service, batch, by: exchange.caller)
    let reader = reader(of: batch, exchange, tracksContent: begins || !batch.isOpen)
    let upload = BatchUpload(format, into: reader)
    do throws(Problem) {
      var count = 0
      while let piece = try await Self.next(of: exchange.request.body) {
        // The piece may have arrived long after the last check.
        try checkAccess(exchange)
        count += piece.count
        try await bodyParser.parse(count, for: exchange.client) { () throws(Problem) in
          try upload.read(piece)
        }
        try await add(from: upload, to: writer)
      }
      // The last line may have no line break.
      try await bodyParser.parse(count, for: exchange.client) { () throws(Problem) in
        // Only the first request's content is compared with that of an open batch; any other batch is closed now.
        try upload.finish(completesContent: begins && batch.isOpen)
      }
      try await add(from: upload, to: writer)
      return try await finishUpload(try await finished(writer), exchange)
    } catch {
      if !begins || !Self.isRefused(batch, for: error) {
        try? await add(from: upload, to: writer)
      }
      _ = try? await writer.finish()
      if begins { await deleteRefused(batch, received: writer.received, after: error, exchange) }
      throw error
    }
  }

  /// - Parameter tracksContent: whether the lines are added to the batch's ``Batch/content``.
  private func reader(
    of batch: Batch, _ exchange: AuthorizedRequest, tracksContent: Bool = false
  ) -> BatchLineReader {
    var decoder = decoder(for: exchange)
    // An admin may add lines to another owner's batch.
    decoder.destinations = destinations(for: batch.owner)
    // The defaults were checked when the batch was created. If limits were lowered since, members above them are ignored.
    let members = batch.defaults.flatMap(Self.defaults) ?? []
    let template = decoder.template(from: members, at: .parameter("defaults"))
    decoder.mistakes = RequestErrors()
    var reader = BatchLineReader(
      decoder, template: template, tags: batch.tags, after: batch.received,
      mostLines: configuration.maxBatchLines, content: tracksContent ? batch.content : nil)
    if let webhook = batch.webhook { reader.applyToJobs(webhook) }
    return reader
  }

  private static func next(of body: RequestBody) async throws(Problem) -> [UInt8]? {
    do { return try await body.next() } catch { throw Problem(error) }
  }

  /// Passes the lines that were read to the writer. Lines above the maximum were not kept.
  private func add(from upload: BatchUpload, to writer: BatchWriter) async throws(Problem) {
    let (parts, isOverfull) = upload.dequeueLines()
    for lines in parts {
      do { try await writer.add(lines) } catch { throw Problem(error) }
    }
    guard !isOverfull else {
      throw Problem(
        .bodyTooLarge,
        "A batch has at most \(configuration.maxBatchLines) lines. Create another one for the rest."
      )
    }
  }

  private func finished(_ writer: BatchWriter) async throws(Problem) -> Batch {
    do { return try await writer.finish() } catch { throw Problem(error) }
  }

  /// Closes the batch at the end of its upload. Throws if it has no jobs.
  private func finishUpload(_ batch: Batch, _ exchange: AuthorizedRequest) async throws(Problem)
    -> Batch
  {
    if batch.isOpen { return batch }
    guard batch.counts.all > 0 else {
      try await callEngine { () throws(JobsError) in
        try await service.deleteEmptyBatch(batch.id, after: batch.received)
      }
      throw Problem(.invalidOption, "A batch has at least one job.", status: .unprocessableContent)
    }
    return try await callEngine { () throws(JobsError) in
      try await service.close(batch.id, for: exchange.caller)
    }
  }
}
