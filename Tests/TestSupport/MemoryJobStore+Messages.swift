package import Jobs

/// Webhook messages.
extension MemoryJobStore: WebhookOutbox {
  struct KeptMessage {
    var message: WebhookMessage
    var holder: Instance?
  }

  /// Queues a message; nil if there is no receiver.
  package func enqueueMessage(_ message: WebhookMessage?) {
    guard let message else { return }
    messages[message.id] = KeptMessage(message: message)
  }

  func forgetMessages(of subject: JobID, waiting: Bool) {
    messages = messages.filter {
      $0.key.subject != subject || $0.value.message.nextTry != nil && !waiting
    }
  }

  package func claimMessages(_ request: MessageRequest) async throws(StoreError) -> ClaimedMessages
  {
    try await mayFail()
    try check(request.instance)
    countBatches()
    let moment = now
    for (id, kept) in messages {
      guard let holder = kept.holder else { continue }
      let isSent = holder == request.instance ? request.sending.contains(id) : leases[holder] != nil
      if !isSent { messages[id]?.holder = nil }
    }
    var taken = ClaimedMessages()
    var owners = request.owners
    let waiting = messages.values.map(\.message).filter { $0.nextTry != nil }
    taken.after = request.after
    func isDue(_ next: Timestamp) -> Bool {
      next <= moment || next > moment + WebhookSchedule.longestWait
    }
    func isAnyoneServed() -> Bool {
      owners.full.isEmpty
        || waiting.contains { isDue($0.nextTry!) && owners.hasCapacity(for: $0.owner) }
    }
    let nextDue = messages.values.filter { $0.holder == nil }.compactMap(\.message.nextTry)
      .filter { !isDue($0) }.min()
    guard isAnyoneServed() else {
      taken.nextDue = nextDue
      return taken
    }
    let hosts = Set(waiting.map(\.host)).sorted().filter { $0 > request.after ?? "" }
    for host in hosts.prefix(MessageRequest.mostHosts) {
      let here = messages.values.filter { $0.message.host == host }
      let busy = here.count { $0.holder != nil }
      let due = here.filter { kept in
        kept.holder == nil && kept.message.nextTry.map(isDue) ?? false
      }.map(\.message).sorted { $0.nextTry! < $1.nextTry! }
      let room = min(request.perHost - busy, request.count - taken.messages.count)
      let end = taken.messages.count + room
      for message in due where taken.messages.count < end && owners.acquireSlot(for: message.owner)
      {
        messages[message.id]?.holder = request.instance
        taken.messages.append(message)
      }
      taken.after = host
      if taken.messages.count == request.count { return taken }
      guard isAnyoneServed() else { return taken }
    }
    if hosts.count <= MessageRequest.mostHosts {
      (taken.after, taken.nextDue) = (nil, nextDue)
    }
    return taken
  }

  package func saveResult(_ message: WebhookMessage, by instance: Instance) async throws(StoreError)
  {
    try await mayFail()
    guard let kept = messages[message.id], kept.holder == instance else { return }
    var message = message
    if kept.message.isAskedFor { message.sendAgain(at: now) }
    messages[message.id] = KeptMessage(message: message)
    guard message.nextTry == nil else { return }
    let subject = message.id.subject
    if rows[subject] == nil, batches[subject] == nil { messages[message.id] = nil }
    let told = messages.values.map(\.message)
      .filter { $0.id.subject == subject && $0.nextTry == nil }
      .sorted { $0.id.number < $1.id.number }
    for message in told.dropLast(WebhookMessage.mostOfSubject) { messages[message.id] = nil }
  }

  package func messages(of subject: JobID) async throws(StoreError) -> [WebhookMessage] {
    try await mayFail()
    countBatches()
    let all = messages.values.map(\.message).filter { $0.id.subject == subject }
      .sorted { $0.id.number < $1.id.number }
    return Array(all.suffix(WebhookMessage.mostOfSubject))
  }

  package func sendAgain(of subject: JobID) async throws(StoreError) -> WebhookMessage? {
    guard var message = try await messages(of: subject).last else { return nil }
    let holder = messages[message.id]?.holder
    if holder == nil { message.sendAgain(at: now) } else { message.requestAgain() }
    messages[message.id] = KeptMessage(message: message, holder: holder)
    return message
  }

  package func waitingMessages(
    of owner: Owner, upTo limit: Int
  ) async throws(StoreError) -> Int {
    countBatches()
    return min(
      limit, messages.values.count { $0.message.nextTry != nil && $0.message.owner == owner })
  }

  package func waitingMessages() async throws(StoreError) -> Int {
    countBatches()
    return messages.values.count { $0.message.nextTry != nil }
  }
}
