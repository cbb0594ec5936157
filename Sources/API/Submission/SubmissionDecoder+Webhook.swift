internal import Jobs

/// Decodes `notify`: the webhook of a job or a batch.
extension SubmissionDecoder {
  /// The webhook of a batch: its own end, or the ends of its jobs, as `events` lists them.
  mutating func batchWebhook(_ value: JSONValue, at location: Location) -> Webhook? {
    webhook(value, of: Set(WebhookEvent.allCases), usually: [.batchFinished], at: location)
  }

  /// - Parameters:
  ///   - ends: the events that exist for the subject.
  ///   - usual: the events if the client lists none; nil: all.
  mutating func webhook(
    _ value: JSONValue, of ends: Set<WebhookEvent>, usually usual: Set<WebhookEvent>? = nil,
    at location: Location
  ) -> Webhook? {
    guard case .object(let members) = value else {
      addMistake(location, "Must be an object with url, not \(value.kind).")
      return nil
    }
    var (target, events): (SourceURL?, Set<WebhookEvent>) = (nil, usual ?? ends)
    var isWhole = true
    for member in members {
      let location = location.child(member.name)
      switch member.name {
      case "url": target = webhookURL(member.value, at: location)
      case "events":
        guard let chosen = webhookEvents(member.value, of: ends, at: location) else {
          isWhole = false
          continue
        }
        events = chosen
      default:
        let hint = mistakes.hint(for: member.name, among: ["url", "events"])
        addMistake(location, "A webhook has no such member.\(hint)")
        isWhole = false
      }
    }
    if !members.contains(where: { $0.name == "url" }) {
      mistakes.add(location.child("url"), .missingURL, "url is missing.")
    }
    return isWhole ? target.map { Webhook(url: $0, events: events) } : nil
  }

  private mutating func webhookURL(_ value: JSONValue, at location: Location) -> SourceURL? {
    guard let url = url(value, at: location) else { return nil }
    guard url.scheme == "https" || allowsPlainWebhooks else {
      mistakes.add(location, .invalidURL, "Must be an https URL.")
      return nil
    }
    return url
  }

  private mutating func webhookEvents(
    _ value: JSONValue, of ends: Set<WebhookEvent>, at location: Location
  ) -> Set<WebhookEvent>? {
    let words = WebhookEvent.allCases.filter(ends.contains).map(\.rawValue)
    guard case .array(let elements) = value, 1...16 ~= elements.count else {
      addMistake(location, "Must be an array of one or more of \(words.joined(separator: ", ")).")
      return nil
    }
    let events = elements.map { $0.string.flatMap(WebhookEvent.init(rawValue:)) }
    guard events.allSatisfy({ $0.map(ends.contains) ?? false }) else {
      addMistake(location, "Each must be one of \(words.joined(separator: ", ")).")
      return nil
    }
    return Set(events.compactMap(\.self))
  }
}
