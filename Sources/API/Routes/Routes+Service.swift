internal import HTTP
internal import HTTPTypes
internal import Jobs

/// The cache and the network state.
extension Routes {
  /// `GET /cache`, `DELETE /cache`.
  func cache(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    if exchange.request.method == .delete { return try await deleteFromCache(exchange) }
    try exchange.checkNoQuery()
    let counts = try await callEngine { () throws(JobsError) in try await service.cacheCounts() }
    return answer { json in
      json.member("entries", counts.entries)
      json.member("bytes", counts.bytes)
      json.member("memory_bytes", counts.memoryBytes)
      json.member("hits", counts.hits)
      json.member("revalidations", counts.revalidations)
      json.member("misses", counts.misses)
    }
  }

  private func deleteFromCache(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    var query = Query(exchange.request.query)
    var decoder = decoder(for: exchange)
    let location = Location(root: .query, member: "url")
    let url = query.value("url").flatMap { decoder.url(.string($0), at: location) }
    // Checked first: a malformed URL must not delete the whole cache.
    try query.checkComplete(with: decoder.mistakes)
    let removed = try await callEngine { () throws(JobsError) in
      try await service.deleteFromCache(url)
    }
    return answer { $0.member("removed", removed) }
  }

  /// `GET /network`, `PUT /network`.
  func network(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    try exchange.checkNoQuery()
    guard exchange.request.method == .put else { return network(service.isConstrained) }
    guard MediaType(exchange.fields[.contentType])?.essence == "application/json",
      exchange.isUnencoded
    else {
      throw Problem(
        .unsupportedMediaType, "Content-Type must be application/json, without a Content-Encoding.")
    }
    let isConstrained = try await Self.constrained(smallJSON(exchange))
    try await callEngine { () throws(JobsError) in try await service.setConstrained(isConstrained) }
    return network(isConstrained)
  }

  private func network(_ isConstrained: Bool) -> Response {
    answer { $0.member("constrained", isConstrained) }
  }

  private static func constrained(_ body: JSONValue) throws(Problem) -> Bool {
    var mistakes = RequestErrors()
    var constrained: Bool?
    if case .object(let members) = body {
      for member in members {
        let location = Location(root: .body(index: nil), member: member.name)
        switch (member.name, member.value) {
        case ("constrained", .bool(let value)): constrained = value
        case ("constrained", _): mistakes.add(location, .invalidOption, "Must be true or false.")
        default:
          mistakes.add(location, .invalidOption, "Unknown member. The only one is constrained.")
        }
      }
      if !members.contains(where: { $0.name == "constrained" }) {
        mistakes.add(.pointer("/constrained"), .invalidOption, "Missing. Must be true or false.")
      }
    } else {
      mistakes.add(
        .pointer(""), .invalidOption, "Must be an object with constrained, not \(body.kind).")
    }
    try mistakes.check()
    return constrained ?? false
  }

  /// The 200 with a JSON object.
  private func answer(_ members: (inout JSONWriter) -> Void) -> Response {
    var writer = JSONWriter()
    writer.object(members)
    return Response(
      status: .ok, fields: [.contentType: "application/json", .cacheControl: "no-store"],
      content: .bytes(writer.bytes))
  }
}
