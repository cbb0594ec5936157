internal import HTTP
internal import HTTPTypes
public import Jobs

/// What is told of a job's end, or a batch's.
extension Routes {
  /// `GET /jobs/{id}/webhooks`.
  func webhooks(_ exchange: Exchange) async throws(Problem) -> Response {
    try exchange.refuseQuery()
    let messages = try await asking { () throws(JobsError) in
      try await service.messages(of: exchange.id, for: exchange.caller)
    }
    return try answer(messages, Self.untoldJob)
  }

  /// `POST /jobs/{id}/webhooks/send`.
  func sendWebhook(_ exchange: Exchange) async throws(Problem) -> Response {
    try exchange.refuseQuery()
    let (message, messages) = try await asking { () throws(JobsError) in
      let message = try await service.sendAgain(of: exchange.id, for: exchange.caller)
      let messages = try await service.messages(of: exchange.id, for: exchange.caller)
      return (message, messages)
    }
    return try answer(messages, withLast: message, Self.untoldJob)
  }

  /// `GET /batches/{id}/webhooks`.
  func batchWebhooks(_ exchange: Exchange) async throws(Problem) -> Response {
    try exchange.refuseQuery()
    let messages = try await asking { () throws(JobsError) in
      try await service.messages(ofBatch: exchange.id, for: exchange.caller)
    }
    return try answer(messages, Self.untoldBatch)
  }

  /// `POST /batches/{id}/webhooks/send`.
  func sendBatchWebhook(_ exchange: Exchange) async throws(Problem) -> Response {
    try exchange.refuseQuery()
    let (message, messages) = try await asking { () throws(JobsError) in
      let message = try await service.sendAgain(ofBatch: exchange.id, for: exchange.caller)
      let messages = try await service.messages(ofBatch: exchange.id, for: exchange.caller)
      return (message, messages)
    }
    return try answer(messages, withLast: message, Self.untoldBatch)
  }

  private static let untoldJob =
    "Nobody was told of this job: it has not ended, or has no notify."
  private static let untoldBatch =
    "Nobody was told of this batch: it has not ended, or has no notify."

  /// The others may have been told since: what was asked for is this one.
  private func answer(
    _ messages: [WebhookMessage], withLast message: WebhookMessage?, _ untold: String
  ) throws(Problem) -> Response {
    try answer(messages.filter { $0.id != message?.id } + [message].compactMap(\.self), untold)
  }

  private func answer(_ messages: [WebhookMessage], _ untold: String) throws(Problem) -> Response {
    guard let newest = messages.last else { throw Problem(.notFound, untold) }
    let document = WebhookDocument.encode(newest, earlier: messages.dropLast())
    return Response(
      status: .ok, fields: [.contentType: "application/json", .cacheControl: "no-cache"],
      content: .bytes(document))
  }
}

/// A message's JSON, members in the contract's order.
enum WebhookDocument {
  /// - Parameter earlier: what was told of the same job before, which then was fetched again.
  static func encode(_ message: WebhookMessage, earlier: [WebhookMessage]) -> [UInt8] {
    var writer = JSONWriter()
    writer.object { json in
      write(message, to: &json)
      json.key("earlier")
      json.array(earlier) { json, message in json.object { write(message, to: &$0) } }
    }
    return writer.bytes
  }

  private static func write(_ message: WebhookMessage, to json: inout JSONWriter) {
    json.member("id", message.id.description)
    json.member("type", message.event.rawValue)
    json.member("state", message.state.rawValue)
    json.member("next_at", message.nextTry?.description)
    json.key("tries")
    json.array(message.tries) { json, one in
      json.object { json in
        json.member("at", one.moment.description)
        json.member("status", one.status)
        json.member("error", one.described)
        json.member("ms", Int(one.time.inMilliseconds))
      }
    }
  }
}

/// What a message says, as it is sent.
public enum WebhookBody {
  /// Of Standard Webhooks' recommendation.
  static let maxBytes = 20_480

  /// The same for each try. Where it would have more than 20 KiB, the job goes without what may be long in it: first
  /// URLs beside its own, then its tags, then its variants and what its deliveries are called where they were brought.
  public static func encode(_ message: WebhookMessage) -> [UInt8] {
    for brevity in JobDocument.Brevity.allCases.dropLast() {
      let body = encode(message, brevity)
      if body.count <= maxBytes { return body }
    }
    return encode(message, .withoutVariants)
  }

  private static func encode(
    _ message: WebhookMessage, _ brevity: JobDocument.Brevity
  ) -> [UInt8] {
    let data =
      switch message.subject {
      case .job(let job): JobDocument.encode(job, brevity)
      case .batch(let batch): BatchDocument.encode(batch, at: message.moment)
      }
    var writer = JSONWriter(capacity: data.count + 128)
    writer.object { json in
      json.member("type", message.event.rawValue)
      json.member("timestamp", message.moment.description)
      json.key("data")
      json.value(data)
    }
    return writer.bytes
  }
}
