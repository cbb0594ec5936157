internal import HTTP
internal import HTTPTypes
internal import Jobs

/// Handlers for existing batches.
extension Routes {
  /// `GET /batches/{id}`.
  func batch(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    let wait = try waitOnly(exchange)
    var batch = try await currentBatch(exchange)
    let known = exchange.fields[.ifNoneMatch]
    var isKnown = known.map { Conditions.names(batch.entityTag, in: $0) } ?? false
    // If the client's version is already outdated, it gets the current one at once.
    if let wait, wait.limit > .zero, known == nil ? !batch.state.isOver : isKnown {
      let place = try reserveConnection(for: exchange)
      defer { place.release() }
      let revision = isKnown ? batch.revision : nil
      batch = try await callEngine { () throws(JobsError) in
        try await service.wait(
          exchange.id, for: exchange.caller, beyond: revision, atMost: wait.limit)
      }
      isKnown = known.map { Conditions.names(batch.entityTag, in: $0) } ?? false
    }
    var response = answer(batch, .ok)
    if isKnown { response = response.notModified }
    response.fields.acknowledge(wait)
    return response
  }

  /// `POST /batches/{id}/close`.
  func closeBatch(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    try exchange.checkNoQuery()
    try await checkMatch(exchange)
    return answer(
      try await callEngine { () throws(JobsError) in
        try await service.close(exchange.id, for: exchange.caller)
      }, .ok)
  }

  /// `GET /batches`.
  func batches(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    var query = Query(exchange.request.query)
    let limit = query.int("limit", in: 1...500) ?? 50
    // An admin sees the batches of all owners.
    let owner = exchange.caller.isAdmin ? nil : exchange.caller.owner
    var wanted = BatchQuery(owner: owner, now: service.now(), limit: limit)
    for word in query.values("state") {
      if let state = Batch.State(rawValue: word) {
        wanted.states.insert(state)
      } else {
        let words = Batch.State.allCases.map(\.rawValue).joined(separator: ", ")
        query.addMistake("state", "Must be one of \(words).")
      }
    }
    if let cursor = query.value("cursor") {
      wanted.before = Self.job(before: cursor)
      if wanted.before == nil {
        query.addMistake("cursor", "Must be the next_cursor of an earlier response.")
      }
    }
    try query.checkComplete()
    let page = try await callEngine { [wanted] () throws(JobsError) in
      try await service.batches(wanted)
    }
    let cursor = page.hasMore ? (page.last ?? page.batches.last?.id).map(Self.cursor(after:)) : nil
    var fields: HTTPFields = [.contentType: "application/json", .cacheControl: "no-cache"]
    if let cursor {
      let states = Batch.State.allCases.filter(wanted.states.contains).map {
        "state=\($0.rawValue)&"
      }
      fields[.link] =
        "</batches?\(states.joined())limit=\(limit)&cursor=\(cursor)>; rel=\"next\""
    }
    let body = BatchDocument.encode(page: page.batches, nextCursor: cursor, at: service.now())
    return Response(status: .ok, fields: fields, content: .bytes(body))
  }

  /// Above the limit of any batch, and small enough that adding to it can't overflow.
  static let mostLines = 1 << 40

  /// `GET /batches/{id}/results`.
  func results(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    var query = Query(exchange.request.query)
    let follows = query.bool("follow")
    let from = query.int("from", in: 1...Self.mostLines) ?? 1
    var phases: Set<Phase> = []
    var isEachWanted = true
    var withRejected = false
    for word in query.values("phase") {
      isEachWanted = false
      if let phase = Phase(rawValue: word), phase.isFinished {
        phases.insert(phase)
      } else if word == "rejected" {
        withRejected = true
      } else {
        query.addMistake("phase", "Must be one of success, failure, cancelled, rejected.")
      }
    }
    try query.checkComplete()
    let batch = try await currentBatch(exchange)
    var wanted = ResultQuery(batch.id, after: from - 1, through: from - 1)
    wanted.phases = isEachWanted || !phases.isEmpty ? phases : [.queued]
    wanted.withRejected = isEachWanted || withRejected
    wanted.isInOrder = follows
    let fields: HTTPFields = [
      .contentType: "application/x-ndjson", .cacheControl: "no-store",
      // Without this field nginx would buffer the lines.
      .xAccelBuffering: "no",
    ]
    if exchange.request.method == .head {
      return Response(status: .ok, fields: fields, content: .omitted(count: nil))
    }
    let place = try reserveConnection(for: exchange)
    let stream = ResultStream(
      wanted, of: batch, for: exchange.caller, exchange.client, service, turns: resultPages,
      log: log)
    return Response(status: .ok, fields: fields, content: .stream(stream), keeping: place)
  }

  /// `DELETE /batches/{id}`.
  func cancelBatch(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    var query = Query(exchange.request.query)
    let purges = query.bool("purge")
    try query.checkComplete()
    try await checkMatch(exchange)
    guard purges else {
      return answer(
        try await callEngine { () throws(JobsError) in
          try await service.cancel(batch: exchange.id, for: exchange.caller)
        }, .ok)
    }
    try await callEngine { () throws(JobsError) in
      try await service.purge(batch: exchange.id, refusedAfter: nil, for: exchange.caller)
    }
    return Response(status: .noContent)
  }

  /// `POST /batches/{id}/retry`.
  func retryBatch(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    try exchange.checkNoQuery()
    guard service.state != .draining else { throw Problem(JobsError.draining) }
    let codes = try await retriedCodes(exchange)
    try await checkMatch(exchange)
    return answer(
      try await callEngine { () throws(JobsError) in
        try await service.retry(batch: exchange.id, codes: codes, for: exchange.caller)
      }, .ok)
  }

  /// The failure codes in the body; empty if there is no body.
  private func retriedCodes(_ exchange: AuthorizedRequest) async throws(Problem) -> Set<FailureCode>
  {
    if exchange.request.body.declaredLength == 0 { return [] }
    guard MediaType(exchange.fields[.contentType])?.essence == "application/json",
      exchange.isUnencoded
    else {
      throw Problem(
        .unsupportedMediaType,
        "Send no body, or set Content-Type to application/json without a Content-Encoding.")
    }
    var mistakes = RequestErrors()
    var codes: Set<FailureCode> = []
    guard case .object(let members) = try await smallJSON(exchange) else {
      throw Problem(.invalidOption, "Must be an object with codes.")
    }
    for member in members {
      guard member.name == "codes", case .array(let words) = member.value else {
        mistakes.add(
          .pointer("/\(member.name.prefix(bytes: 128))"), .invalidOption,
          "Unknown member, or codes is not an array."
        )
        continue
      }
      for (index, word) in words.enumerated() {
        if let code = word.string.flatMap(FailureCode.init) {
          codes.insert(code)
        } else {
          mistakes.add(
            .pointer("/codes/\(index)"), .invalidOption, "Must be the failure code of a job.")
        }
      }
    }
    try mistakes.check()
    return codes
  }

  /// `GET /batches/{id}/events`.
  func batchEvents(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    try exchange.checkNoQuery()
    let batch = try await currentBatch(exchange)
    var seen: Int?
    if case .version(let version)? = LastEventID(exchange.fields[.lastEventID]) { seen = version }
    // 204 is the only response after which a browser's EventSource does not reconnect.
    if batch.state.isOver, !batch.isCancelling, seen == batch.revision {
      return Response(status: .noContent)
    }
    if exchange.request.method == .head { return events(.omitted(count: nil)) }
    let place = try reserveConnection(for: exchange)
    return events(.stream(BatchEventStream(exchange.id, seen: seen, service)), place)
  }

  /// Checks `If-Match` (RFC 9110 section 13.1.1) against the current batch. The check is not atomic: a job may finish
  /// between it and the requested change.
  private func checkMatch(_ exchange: AuthorizedRequest) async throws(Problem) {
    guard let field = exchange.fields[.ifMatch] else { return }
    guard Conditions.matches(try await currentBatch(exchange).entityTag, field) else {
      throw Problem(
        .preconditionFailed,
        "If-Match does not match the batch's ETag. Get the batch, and use its ETag.")
    }
  }

  /// The current batch.
  func currentBatch(_ exchange: AuthorizedRequest) async throws(Problem) -> Batch {
    try await callEngine { () throws(JobsError) in
      try await service.batch(exchange.id, for: exchange.caller)
    }
  }

  /// The response with the batch.
  func answer(_ batch: Batch, _ status: HTTPResponse.Status) -> Response {
    Response(
      status: status,
      fields: [
        .contentType: "application/json", .eTag: batch.entityTag, .cacheControl: "no-cache",
      ],
      content: .bytes(BatchDocument.encode(batch, at: service.now())))
  }
}
