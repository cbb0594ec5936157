internal import Jobs
internal import Metrics

/// What sending messages came to, as `GET /metrics` shows it.
struct WebhookMetrics: Sendable {
  private let waiting = Gauge(label: "imagefetch_webhooks_waiting")
  private let sending = Gauge(label: "imagefetch_webhooks_sending")
  private let time = Timer(label: "imagefetch_webhook_seconds")

  init() {
    // Shown from the start on, so that a first one is seen as an increase.
    for outcome in ["delivered", "refused", "unreachable"] { tries(outcome).increment(by: 0) }
    for state in ["delivered", "failed"] { ended(state).increment(by: 0) }
  }

  func tried(_ message: WebhookMessage, _ answer: WebhookAnswer) {
    time.record(duration: answer.time)
    tries(answer.isTaken ? "delivered" : answer.status == nil ? "unreachable" : "refused")
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
