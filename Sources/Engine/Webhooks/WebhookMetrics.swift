internal import Jobs
internal import Metrics

/// The metrics of webhooks, as `GET /metrics` shows them.
struct WebhookMetrics: Sendable {
  private let waiting = Gauge(label: "imagefetch_webhooks_waiting")
  private let sending = Gauge(label: "imagefetch_webhooks_sending")
  private let time = Timer(label: "imagefetch_webhook_seconds")

  init() {
    // Initialized with zero, so that the first message shows as an increase.
    for outcome in ["delivered", "refused", "unreachable"] { tries(outcome).increment(by: 0) }
    for state in ["delivered", "failed"] { ended(state).increment(by: 0) }
  }

  func tried(_ message: WebhookMessage, _ answer: WebhookAnswer) {
    time.record(duration: answer.time)
    tries(answer.isDelivered ? "delivered" : answer.status == nil ? "unreachable" : "refused")
      .increment()
    if message.nextTry == nil { ended(message.state.rawValue).increment() }
  }

  func observe(waiting: Int, sending: Int) {
    self.waiting.record(waiting)
    self.sending.record(sending)
  }

  private func tries(_ outcome: String) -> Counter {
    Counter(label: "imagefetch_webhook_tries_total", dimensions: [("outcome", outcome)])
  }

  private func ended(_ state: String) -> Counter {
    Counter(label: "imagefetch_webhooks_ended_total", dimensions: [("state", state)])
  }
}
