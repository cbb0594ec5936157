internal import HTTP
internal import HTTPTypes
internal import Jobs

/// Handlers for one job.
extension Routes {
  /// `GET /jobs/{id}`.
  func job(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    let wait = try waitOnly(exchange)
    var snapshot = try await current(exchange)
    let known = exchange.fields[.ifNoneMatch]
    var isKnown = known.map { Conditions.names(snapshot.entityTag, in: $0) } ?? false
    // If the client's version is already outdated, it gets the current one at once.
    if let wait, known == nil || isKnown {
      let goal = isKnown ? WaitCondition.versionOtherThan(snapshot.job.version) : .finished
      snapshot = try await waited(exchange, snapshot, until: goal, wait)
      isKnown = known.map { Conditions.names(snapshot.entityTag, in: $0) } ?? false
    }
    var response = answer(snapshot)
    if isKnown { response = response.notModified }
    response.fields.acknowledge(wait)
    return response
  }

  /// `PATCH /jobs/{id}`: a merge patch (RFC 7396).
  func edit(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    try exchange.checkNoQuery()
    let type = MediaType(exchange.fields[.contentType])?.essence
    let types = ["application/merge-patch+json", "application/json"]
    guard let type, types.contains(type), exchange.isUnencoded else {
      throw Problem(
        .unsupportedMediaType, "Content-Type must be \(types.joined(separator: " or "))."
      )
      .with(.acceptPatch, types.joined(separator: ", "))
    }
    let (priority, tags) = try await changes(smallJSON(exchange), exchange)
    let snapshot = try await callEngine { () throws(JobsError) in
      try await service.edit(
        exchange.id, for: exchange.caller, priority: priority, tags: tags,
        ifVersion: exchange.expectedVersions)
    }
    return answer(snapshot)
  }

  /// `DELETE /jobs/{id}`.
  func cancel(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    var query = Query(exchange.request.query)
    let purges = query.bool("purge")
    try query.checkComplete()
    let versions = exchange.expectedVersions
    guard purges else {
      return answer(
        try await callEngine { () throws(JobsError) in
          try await service.cancel(exchange.id, for: exchange.caller, ifVersion: versions)
        })
    }
    try await callEngine { () throws(JobsError) in
      try await service.purge(exchange.id, for: exchange.caller, ifVersion: versions)
    }
    return Response(status: .noContent)
  }

  /// `POST /jobs/{id}/fetch`.
  func fetchAgain(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    try exchange.checkNoQuery()
    guard service.state != .draining else { throw Problem(JobsError.draining) }
    return answer(
      try await callEngine { () throws(JobsError) in
        try await service.refetch(
          exchange.id, for: exchange.caller, ifVersion: exchange.expectedVersions)
      })
  }

  /// The current job, from memory if possible.
  func current(_ exchange: AuthorizedRequest) async throws(Problem) -> JobSnapshot {
    if let snapshot = service.peek(exchange.id, for: exchange.caller) { return snapshot }
    return try await callEngine { () throws(JobsError) in
      try await service.job(exchange.id, for: exchange.caller)
    }
  }

  /// Waits until the goal is met or the time is over. Returns the job then.
  func waited(
    _ exchange: AuthorizedRequest, _ snapshot: JobSnapshot, until goal: WaitCondition, _ wait: Wait
  ) async throws(Problem) -> JobSnapshot {
    guard !goal.isMet(by: snapshot.job), wait.limit > .zero else { return snapshot }
    let place = try reserveConnection(for: exchange)
    defer { place.release() }
    return try await callEngine { () throws(JobsError) in
      try await service.wait(exchange.id, for: exchange.caller, until: goal, atMost: wait.limit)
    }
  }

  /// The 200 with the job.
  private func answer(_ snapshot: JobSnapshot) -> Response {
    var fields = HTTPFields()
    fields.reserveCapacity(4)
    fields.append(HTTPField(name: .contentType, value: "application/json"))
    fields.append(HTTPField(name: .eTag, value: snapshot.entityTag))
    fields.append(HTTPField(name: .cacheControl, value: "no-cache"))
    return Response(status: .ok, fields: fields, content: .bytes(document(of: snapshot)))
  }

  /// The changes in a patch. Null sets the default.
  private func changes(
    _ patch: JSONValue, _ exchange: AuthorizedRequest
  ) throws(Problem) -> (Priority?, [String]?) {
    var decoder = decoder(for: exchange)
    guard case .object(let members) = patch else {
      decoder.mistakes.add(.pointer(""), .invalidOption, "The patch must be an object.")
      try decoder.mistakes.check()
      return (nil, nil)
    }
    var priority: Priority?
    var tags: [String]?
    for member in members {
      let location = Location(root: .body(index: nil), member: member.name)
      switch (member.name, member.value) {
      case ("priority", .null): priority = decoder.defaultPriority
      case ("priority", let value): priority = decoder.priority(value, at: location)
      case ("tags", .null): tags = []
      case ("tags", let value): tags = decoder.tags(value, at: location)
      default:
        decoder.mistakes.add(
          location, .invalidOption, "Only priority and tags can be changed.")
      }
    }
    try decoder.mistakes.check()
    return (priority, tags)
  }
}

extension AuthorizedRequest {
  /// The versions in `If-Match` (RFC 9110 section 13.1.1); nil: any version.
  fileprivate var expectedVersions: [Int]? {
    guard let field = fields[.ifMatch], field != "*" else { return nil }
    return Conditions.strongTags(field).compactMap(JobSnapshot.version(ofTag:))
  }
}
