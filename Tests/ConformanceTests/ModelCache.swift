import Caching

/// A minimal cache made of the caching rules, for one origin. The test moves its clock.
struct ModelCache {
  /// Milliseconds since 1970.
  private(set) var now: Int64 = 1_795_219_200_000
  private var origin: CaseOrigin
  /// The stored responses for each URL, each with the step that its body came from.
  private var stored: [String: [(response: StoredResponse, step: Int)]] = [:]

  init(_ row: Case) { origin = CaseOrigin(row) }

  /// Runs a step. Returns its result, and the age in seconds of a stored response that is the result.
  mutating func run(_ step: Step, number: Int) -> (result: Expected, age: Int?) {
    origin.begin(number)
    now += Int64(step.pause) * 1000
    let request = step.headers.map { Field(name: $0.key, value: $0.value) }
    let found =
      step.mode == "no-store"
      ? nil
      : Selection.newest(of: stored[step.query, default: []].map(\.response)) {
        $0.matches(request)
      }
    guard let found, let entry = stored[step.query]?[found] else {
      return (step.mode == "only-if-cached" ? .failed : fetch(step, request, nil), nil)
    }
    let freshness = Freshness(of: entry.response, at: now, assigned: nil, fallback: nil)
    if freshness.isFresh, step.mode != "no-cache" {
      return (.cached(from: entry.step), freshness.age)
    }
    if step.mode == "force-cache" { return (.stale(asks: false), freshness.age) }
    let outcome = fetch(step, request, found)
    let mayBeStale =
      freshness.permitsStaleWhileRevalidating || outcome == .failed && freshness.permitsStaleIfError
    return (mayBeStale ? .stale(asks: true) : outcome, nil)
  }

  private mutating func fetch(_ step: Step, _ request: [Field], _ found: Int?) -> Expected {
    let conditions =
      found.flatMap { stored[step.query]?[$0] }.map { Validation.conditions(for: $0.response) }
      ?? []
    guard let answer = origin.answer(request + conditions, at: now) else { return .failed }
    if answer.status == 304, let found, let entry = stored[step.query]?[found],
      let fresh = Validation.freshen(
        entry.response, with: answer.fields, requestTime: now, responseTime: now)
    {
      stored[step.query]?[found].response = fresh
      return .validated(by: conditions.first?.name ?? "")
    }
    guard [200, 203].contains(answer.status) else { return .failed }
    guard Storing.permits(request: request, response: answer.fields, status: answer.status),
      step.mode != "no-store"
    else { return .asked }
    let response = StoredResponse(
      to: request, fields: answer.fields, requestTime: now, responseTime: now, assignedLifetime: nil
    )
    stored[step.query, default: []].removeAll { $0.response.selector == response.selector }
    stored[step.query, default: []].append((response, origin.number))
    return .asked
  }
}
