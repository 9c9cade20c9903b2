// How the search orders what it finds: pages with the words of the question in their title, then those that answer questions.
const asked = (new URLSearchParams(location.search).get("q") || "").toLowerCase().match(/[a-z0-9_-]+/g) || [];

var Scorer = {
  score: ([page, title, anchor, , score]) => {
    const words = new Set(title.toLowerCase().match(/[a-z0-9_-]+/g) || []);
    const common = asked.filter((word) => words.has(word)).length;
    const kind = /^(how-to|tutorial|troubleshooting)/.test(page) ? 5 : /^(internals|adr|keys|http-reference|cli)/.test(page) ? -5 : 0;
    return score + kind + (20 * common) / Math.max(asked.length, 1);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
