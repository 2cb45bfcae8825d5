// Sorts a table by the column whose header is pressed; without scripts the tables stay as they are.
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const headers = [...table.tHead.rows[0].cells];
  const key = (row, column) => row.cells[column].textContent.trim();
  headers.forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = header.textContent;
    header.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      headers.forEach((other) => other.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", down > 0 ? "ascending" : "descending");
      const number = header.classList.contains("n");
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const x = key(a, column), y = key(b, column);
        if (!number) return down * x.localeCompare(y);
        const p = parseFloat(x), q = parseFloat(y);
        return isNaN(p) || isNaN(q) ? isNaN(p) - isNaN(q) : down * (p - q);  // what has no number stays last
      });
      table.tBodies[0].append(...rows);
    });
  });
}
