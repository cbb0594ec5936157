import Testing

@Suite("HTTP caching, case by case")
struct ConformanceTests {
  @Test("each case of the caching tests is listed once")
  func complete() {
    let ids = Group.all.flatMap(\.ids)
    #expect(Set(ids).count == ids.count)
    for group in Group.all { #expect(group.ids.count == group.count, "\(group.id)") }
  }

  @Test("the caching rules pass each case", arguments: Group.all)
  func rules(group: Group) {
    for row in group.cases {
      var cache = ModelCache(row)
      for (index, step) in row.steps.enumerated() {
        let (result, age) = cache.run(step, number: index + 1)
        #expect(result == step.expected, "\(row.id), step \(index + 1)")
        if let least = step.ageAbove {
          #expect((age ?? 0) > least, "\(row.id), step \(index + 1)")
        }
      }
    }
  }
}
