internal import HTTP
internal import HTTPTypes
internal import Jobs

/// Server-sent events.
extension Routes {
  /// `GET /jobs/{id}/events`.
  func jobEvents(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    var query = Query(exchange.request.query)
    let cancels = query.bool("cancel_on_disconnect")
    try query.checkComplete()
    let job = try await current(exchange).job
    var seen: Int?
    if case .version(let version)? = LastEventID(exchange.fields[.lastEventID]) { seen = version }
    // 204 is the only response after which a browser's EventSource does not reconnect.
    if job.isFinal, seen == job.version { return Response(status: .noContent) }
    guard exchange.request.method != .head else { return events(.stream(EventStream(nil))) }
    let place = try reserveConnection(for: exchange)
    let subscription = try await callEngine { () throws(JobsError) in
      try await service.subscribe(
        to: exchange.id, for: exchange.caller, seen: seen, cancelsOnDisconnect: cancels)
    }
    return events(.stream(EventStream(subscription, waiting: service.waiting)), place)
  }

  /// `GET /events`.
  func events(_ exchange: AuthorizedRequest) throws(Problem) -> Response {
    var query = Query(exchange.request.query)
    var wanted = SubscriptionQuery(caller: exchange.caller)
    wanted.phases = phases(&query)
    wanted.tag = query.value("tag")
    try query.checkComplete()
    switch LastEventID(exchange.fields[.lastEventID]) {
    case .until(let moment)?: wanted.seenUntil = moment
    // The client disconnected before it received a time, so all jobs are sent.
    case .version?: wanted.seenUntil = Timestamp(milliseconds: 0)
    case nil: break
    }
    guard exchange.request.method != .head else { return events(.stream(EventStream(nil))) }
    let share = eventStreams.allocation(for: exchange.client)
    guard share.reserve(1) else {
      throw Problem(
        .rateLimited,
        "The client has \(APIConfiguration.maxEventStreams) open streams of /events. Close one first."
      ).with(.retryAfter, "5")
    }
    let place = try reserveConnection(for: exchange)
    let subscription = service.subscribe(wanted)
    let stream = EventStream(subscription, share, waiting: service.waiting)
    return events(.stream(stream), place)
  }

  /// The response with server-sent events.
  func events(_ content: Response.Content, _ place: Budget.Allocation? = nil) -> Response {
    let fields: HTTPFields = [
      .contentType: "text/event-stream", .cacheControl: "no-store",
      // Without this field nginx would buffer the events.
      .xAccelBuffering: "no",
    ]
    return Response(status: .ok, fields: fields, content: content, keeping: place)
  }
}
