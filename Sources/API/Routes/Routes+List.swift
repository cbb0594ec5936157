internal import HTTP
internal import HTTPTypes
internal import Jobs

/// `GET /jobs`.
extension Routes {
  func list(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    let wanted = try jobQuery(exchange)
    let share = memory.allocation(for: exchange.client)
    guard share.reserve(wanted.limit * Self.usualDocument) else {
      throw .overloaded(
        "Too many lists of jobs are being sent. Retry after the time in Retry-After.")
    }
    let page = try await callEngine { () throws(JobsError) in try await service.jobs(wanted) }
    let last = page.last ?? page.jobs.last?.id
    let cursor = page.hasMore ? last.map { Self.cursor(after: $0) } : nil
    var fields: HTTPFields = [.contentType: "application/json", .cacheControl: "no-cache"]
    if let cursor { fields[.link] = "<\(Self.target(wanted, cursor))>; rel=\"next\"" }
    let body = JobDocument.encode(
      page: page.jobs, nextCursor: cursor, waiting: service.waiting)
    share.set(body.count)
    return Response(status: .ok, fields: fields, content: .bytes(body), keeping: share)
  }

  /// The usual maximum size of a job's JSON, in bytes.
  private static let usualDocument = 2048

  private func jobQuery(_ exchange: AuthorizedRequest) throws(Problem) -> JobQuery {
    var query = Query(exchange.request.query)
    let limit = query.int("limit", in: 1...500) ?? 50
    // An admin sees the jobs of all owners.
    let owner = exchange.caller.isAdmin ? nil : exchange.caller.owner
    var wanted = JobQuery(owner: owner, now: service.now(), limit: limit)
    wanted.phases = phases(&query)
    wanted.tag = query.value("tag")
    select(&wanted, by: &query)
    if let cursor = query.value("cursor") {
      wanted.before = Self.job(before: cursor)
      if wanted.before == nil {
        query.addMistake("cursor", "Must be the next_cursor of an earlier response.")
      }
    }
    try query.checkComplete()
    return wanted
  }

  /// Reads the filters by batch, host, failure code and time.
  private func select(_ wanted: inout JobQuery, by query: inout Query) {
    if let text = query.value("batch") {
      wanted.batch = JobID(text)
      if wanted.batch == nil { query.addMistake("batch", "Must be the id of a batch.") }
    }
    wanted.host = query.value("host").map(Self.host)
    if let word = query.value("code") {
      wanted.code = FailureCode(rawValue: word)
      if wanted.code == nil { query.addMistake("code", "Must be the failure code of a job.") }
    }
    wanted.since = query.moment("since")
    wanted.until = query.moment("until")
  }

  /// The host in the form of a job's URL: lower case, an IPv6 address without brackets.
  private static func host(_ text: String) -> String {
    let host = text.lowercased()
    return host.hasPrefix("[") && host.hasSuffix("]") ? String(host.dropFirst().dropLast()) : host
  }

  /// The phases in the query; empty: all.
  func phases(_ query: inout Query) -> Set<Phase> {
    var phases: Set<Phase> = []
    for word in query.values("phase") {
      if let phase = Phase(rawValue: word) {
        phases.insert(phase)
      } else {
        query.addMistake("phase", "Must be one of queued, loading, success, failure, cancelled.")
      }
    }
    return phases
  }

  /// The cursor is the last job's id in 32 hexadecimal digits. Opaque to clients.
  static func cursor(after id: JobID) -> String {
    id.description.filter { $0 != "-" }
  }

  static func job(before cursor: String) -> JobID? {
    guard cursor.utf8.count == 32, cursor.utf8.allSatisfy({ $0 != UInt8(ascii: "+") }),
      let high = UInt64(cursor.prefix(16), radix: 16),
      let low = UInt64(cursor.suffix(16), radix: 16)
    else { return nil }
    return JobID(high: high, low: low)
  }

  private static func target(_ query: JobQuery, _ cursor: String) -> String {
    var members = Phase.allCases.filter(query.phases.contains).map { "phase=\($0.rawValue)" }
    if let tag = query.tag { members.append("tag=\(percentEncoded(tag))") }
    if let batch = query.batch { members.append("batch=\(batch)") }
    if let host = query.host { members.append("host=\(percentEncoded(host))") }
    if let code = query.code { members.append("code=\(code.rawValue)") }
    if let since = query.since { members.append("since=\(percentEncoded(since.description))") }
    if let until = query.until { members.append("until=\(percentEncoded(until.description))") }
    members += ["limit=\(query.limit)", "cursor=\(cursor)"]
    return "/jobs?" + members.joined(separator: "&")
  }

  private static func percentEncoded(_ text: String) -> String {
    text.utf8.reduce(into: "") { out, byte in
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."),
        UInt8(ascii: "_"), UInt8(ascii: "~"):
        out.append(Character(Unicode.Scalar(byte)))
      default:
        out += byte < 16 ? "%0" : "%"
        out += String(byte, radix: 16, uppercase: true)
      }
    }
  }
}
