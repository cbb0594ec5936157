internal import Jobs

/// Decodes `deliver`: the destinations that a job's image and variants are uploaded to before the job succeeds.
extension SubmissionDecoder {
  mutating func deliveries(_ value: JSONValue, at location: Location) -> [DeliveryRequest] {
    guard case .array(let elements) = value, elements.count <= DeliveryRequest.most else {
      addMistake(location, "Must be an array of at most \(DeliveryRequest.most) deliveries.")
      return []
    }
    return elements.enumerated().compactMap { index, element in
      delivery(element, at: location.child("\(index)"))
    }
  }

  /// Checks the names of variants. Call it after all members are set.
  mutating func checkDeliveries(of job: NewJob, at location: Location) {
    let names = Set(job.submission.variants.map(\.name))
    for (index, delivery) in job.submission.deliveries.enumerated() {
      guard let name = delivery.variant, !names.contains(name) else { continue }
      addMistake(location.child("\(index)").child("what"), "The job has no variant of this name.")
    }
  }

  private mutating func delivery(_ value: JSONValue, at location: Location) -> DeliveryRequest? {
    guard case .object(let members) = value else {
      addMistake(location, "A delivery must be an object, not \(value.kind).")
      return nil
    }
    func member(_ name: String) -> JSONValue? { members.first { $0.name == name }?.value }
    let variant: String?
    switch member("what") {
    case nil, .string("original"): variant = nil
    case .string(let name): variant = name
    default:
      addMistake(location.child("what"), "Must be original or the name of a variant.")
      return nil
    }
    for member in members where !Self.deliveryMembers.contains(member.name) {
      let hint = mistakes.hint(for: member.name, among: Self.deliveryMembers)
      addMistake(location.child(member.name), "A delivery has no such member.\(hint)")
    }
    switch (member("put"), member("to")) {
    case (let put?, nil):
      guard member("key") == nil else {
        addMistake(location.child("key"), "Remove key: a presigned URL already names the object.")
        return nil
      }
      guard let url = url(put, at: location.child("put")) else { return nil }
      let fields = member("headers").map { headers($0, at: location.child("headers")) } ?? []
      return DeliveryRequest(.put(url, headers: fields), variant: variant)
    case (nil, let name?):
      guard member("headers") == nil else {
        addMistake(location.child("headers"), "Remove headers: only put has them.")
        return nil
      }
      return profile(name, key: member("key"), variant, at: location)
    default:
      addMistake(location, "A delivery must have either put or to.")
      return nil
    }
  }

  private mutating func profile(
    _ name: JSONValue, key: JSONValue?, _ variant: String?, at location: Location
  ) -> DeliveryRequest? {
    guard let name = name.string, destinations.contains(name) else {
      addMistake(location.child("to"), "There is no destination of this name.")
      return nil
    }
    guard let key else {
      let usual = DeliveryKey(forVariant: variant != nil)
      return DeliveryRequest(.profile(name, key: usual), variant: variant)
    }
    guard let key = key.string.flatMap({ DeliveryKey($0) }) else {
      let names = DeliveryKey.Placeholder.allCases.map { "{\($0.rawValue)}" }.joined(separator: " ")
      addMistake(
        location.child("key"),
        "Must be a path of at most \(DeliveryKey.longest) bytes, without empty, . and .. segments. Placeholders: \(names)."
      )
      return nil
    }
    return DeliveryRequest(.profile(name, key: key), variant: variant)
  }

  private static let deliveryMembers = ["put", "to", "key", "what", "headers"]
}

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
