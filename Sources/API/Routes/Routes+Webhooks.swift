internal import HTTP
internal import HTTPTypes
package import Jobs

/// The webhook messages of a job or a batch.
extension Routes {
  /// `GET /jobs/{id}/webhooks`.
  func webhooks(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    try exchange.checkNoQuery()
    let messages = try await callEngine { () throws(JobsError) in
      try await service.messages(of: exchange.id, for: exchange.caller)
    }
    return try answer(messages, Self.jobHasNoMessages)
  }

  /// `POST /jobs/{id}/webhooks/send`.
  func sendWebhook(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    try exchange.checkNoQuery()
    let (message, messages) = try await callEngine { () throws(JobsError) in
      let message = try await service.resendWebhook(of: exchange.id, for: exchange.caller)
      let messages = try await service.messages(of: exchange.id, for: exchange.caller)
      return (message, messages)
    }
    return try answer(messages, withLast: message, Self.jobHasNoMessages)
  }

  /// `GET /batches/{id}/webhooks`.
  func batchWebhooks(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    try exchange.checkNoQuery()
    let messages = try await callEngine { () throws(JobsError) in
      try await service.messages(ofBatch: exchange.id, for: exchange.caller)
    }
    return try answer(messages, Self.batchHasNoMessages)
  }

  /// `POST /batches/{id}/webhooks/send`.
  func sendBatchWebhook(_ exchange: AuthorizedRequest) async throws(Problem) -> Response {
    try exchange.checkNoQuery()
    let (message, messages) = try await callEngine { () throws(JobsError) in
      let message = try await service.resendWebhook(ofBatch: exchange.id, for: exchange.caller)
      let messages = try await service.messages(ofBatch: exchange.id, for: exchange.caller)
      return (message, messages)
    }
    return try answer(messages, withLast: message, Self.batchHasNoMessages)
  }

  private static let jobHasNoMessages =
    "The job has no webhook messages: it has not finished, or has no notify."
  private static let batchHasNoMessages =
    "The batch has no webhook messages: it has not finished, or has no notify."

  /// Puts the message that was just sent again last, even if a newer one has been added since.
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

/// The JSON of webhook messages, with the members in the order of openapi.yaml.
enum WebhookDocument {
  /// - Parameter earlier: older messages of the same job. It has several if it was fetched again.
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
        json.member("error", one.clientDetail)
        json.member("ms", Int(one.time.inMilliseconds))
      }
    }
  }
}

/// The body of a webhook message.
package enum WebhookBody {
  /// The maximum that Standard Webhooks recommends.
  static let maxBytes = 20_480

  /// The body, equal for each attempt. If it would be longer than 20 KiB, the job is sent without its long members:
  /// first the URLs except its own, then the tags, then the variants and the keys and ETags of its deliveries.
  package static func encode(_ message: WebhookMessage) -> [UInt8] {
    for brevity in JobDocument.DetailLevel.allCases.dropLast() {
      let body = encode(message, brevity)
      if body.count <= maxBytes { return body }
    }
    return encode(message, .withoutVariants)
  }

  private static func encode(
    _ message: WebhookMessage, _ brevity: JobDocument.DetailLevel
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
