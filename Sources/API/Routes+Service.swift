internal import HTTP
internal import HTTPTypes
internal import Jobs

/// What concerns the service as a whole: its cache and its network.
extension Routes {
  /// `GET /cache`, `DELETE /cache`.
  func cache(_ exchange: Exchange) async throws(Problem) -> Response {
    if exchange.request.method == .delete { return try await dropFromCache(exchange) }
    try exchange.refuseQuery()
    let counts = try await asking { () throws(JobsError) in try await service.cacheCounts() }
    return answer { json in
      json.member("entries", counts.entries)
      json.member("bytes", counts.bytes)
      json.member("memory_bytes", counts.memoryBytes)
      json.member("hits", counts.hits)
      json.member("revalidations", counts.revalidations)
      json.member("misses", counts.misses)
    }
  }

  private func dropFromCache(_ exchange: Exchange) async throws(Problem) -> Response {
    var query = Query(exchange.request.query)
    var decoder = decoder(for: exchange)
    let location = Location(root: .query, member: "url")
    let url = query.one("url").flatMap { decoder.url(.string($0), at: location) }
    // A URL that is none must not drop everything.
    try query.finish(with: decoder.mistakes)
    let removed = try await asking { () throws(JobsError) in
      try await service.dropFromCache(url)
    }
    return answer { $0.member("removed", removed) }
  }

  /// `GET /network`, `PUT /network`.
  func network(_ exchange: Exchange) async throws(Problem) -> Response {
    try exchange.refuseQuery()
    guard exchange.request.method == .put else { return network(service.isConstrained) }
    guard MediaType(exchange.fields[.contentType])?.essence == "application/json",
      exchange.isUnencoded
    else {
      throw Problem(.unsupportedMediaType, "Here goes application/json, not compressed.")
    }
    let isConstrained = try await Self.constrained(smallJSON(exchange))
    try await asking { () throws(JobsError) in try await service.setConstrained(isConstrained) }
    return network(isConstrained)
  }

  private func network(_ isConstrained: Bool) -> Response {
    answer { $0.member("constrained", isConstrained) }
  }

  private static func constrained(_ body: JSONValue) throws(Problem) -> Bool {
    var mistakes = Mistakes()
    var constrained: Bool?
    if case .object(let members) = body {
      for member in members {
        let location = Location(root: .body(index: nil), member: member.name)
        switch (member.name, member.value) {
        case ("constrained", .bool(let value)): constrained = value
        case ("constrained", _): mistakes.add(location, .invalidOption, "It is true or false.")
        default: mistakes.add(location, .invalidOption, "The network has no such member.")
        }
      }
      if !members.contains(where: { $0.name == "constrained" }) {
        mistakes.add(.pointer("/constrained"), .invalidOption, "It is missing: true or false.")
      }
    } else {
      mistakes.add(.pointer(""), .invalidOption, "The network is an object; this is \(body.kind).")
    }
    try mistakes.check()
    return constrained ?? false
  }

  /// 200 with an object.
  private func answer(_ members: (inout JSONWriter) -> Void) -> Response {
    var writer = JSONWriter()
    writer.object(members)
    return Response(
      status: .ok, fields: [.contentType: "application/json", .cacheControl: "no-store"],
      content: .bytes(writer.bytes))
  }
}
